// Package lint checks the rules of this project that no general tool knows: the direction of
// imports, the dependencies and their places, the names of files for one platform, the comments
// that every package and every exported identifier has, the language of comments and documents. It
// has no code of its own, only tests; each failure names its remedy.
//
// The rules are read off the source files rather than off one build of them, so
// that they hold for every platform and every build tag.
package lint
