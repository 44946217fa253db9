//go:build go1.27

package http2

// lengthWithoutResets says whether a request that declares a length, and has no body, is reset, as
// with net/http since Go 1.27.
const lengthWithoutResets = true
