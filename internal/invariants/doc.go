// Package invariants says whether this is a checking build, made with `-tags invariants`.
//
// A checking build looks for misuse that is too expensive to look for in every build: it keeps
// stacks, poisons freed memory, and asserts what comments claim. Enabled is a constant, so in an
// ordinary build the compiler removes everything that it guards.
//
// The tag may add checks and records. It must never choose another algorithm or
// another data structure: the tests have to check the code that ships.
package invariants
