//go:build go1.27

package http2

// lengthWithoutResets says whether a request that declares a length, and has no body, is reset, as
// with net/http since Go 1.27.
const lengthWithoutResets = true

// rootedPath says whether a path that does not begin with a slash, and is not "*", is refused (RFC 9113
// 8.3.1), as with net/http since Go 1.27.
const rootedPath = true
