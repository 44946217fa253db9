// Package lint checks the rules of this project that no general tool knows: who
// may import whom, which dependencies there are and where, how files for one
// platform are named, what every package and every exported identifier has. It
// has no code of its own, only tests; each failure says what to do about it.
//
// The rules are read off the source files rather than off one build of them, so
// that they hold for every platform and every build tag.
package lint
