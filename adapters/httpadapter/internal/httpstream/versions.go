//go:build go1.27

package httpstream

// badLengthResets says whether the server resets a request that declares a length but has no body, or
// two lengths, as net/http does since Go 1.27.
const badLengthResets = true

// rootedPath says whether a path that does not begin with a slash, and is not "*", is refused (RFC 9113
// 8.3.1), as with net/http since Go 1.27.
const rootedPath = true

// tlsWithAnyScheme says whether Request.TLS is set for requests with the scheme http as well, as with
// net/http since Go 1.27.
const tlsWithAnyScheme = true
