// Package invariants says whether this is a checking build, one made with
// `-tags invariants`.
//
// A checking build looks for misuse that would be too dear to look for in
// every build: it keeps stacks, poisons freed memory, asserts what a comment
// claims. Enabled is a constant, so that in an ordinary build the compiler
// removes whatever it guards.
//
// The tag may add checks and records. It must never choose another algorithm
// or another data structure: what the tests check has to be what ships.
package invariants
