// Package invariants says whether this is a checking build, one made with
// `-tags invariants`.
//
// A checking build looks for misuse that is too expensive to look for in every build: it
// keeps stacks, poisons freed memory, asserts the claims of comments. Enabled is a
// constant, so that in an ordinary build the compiler removes all that it guards.
//
// The tag may add checks and records. It must never choose another algorithm or
// another data structure: the tests have to check the code that ships.
package invariants
