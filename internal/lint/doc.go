// Package lint checks the rules of this project that no general tool knows: the direction of
// imports, where each dependency may be used, the names of files for one platform, that every
// package and exported identifier has a comment, and the language of comments and documents. It has
// no code of its own, only tests; each failure says how to fix it.
//
// The tests read the source files rather than one build of them, so the rules hold for every
// platform and every build tag.
package lint
