// Package http1 is HTTP/1.1 without input, output or time: bytes to an *http.Request, and the calls
// of an http.ResponseWriter to bytes.
//
// It takes a strict subset of the requests that net/http takes. A request that it takes is, field by
// field, the *http.Request that net/http makes of the same bytes, and it ends at the same byte. It
// refuses nothing: bytes outside of the subset belong to net/http, which answers them. So net/http
// remains the only judge of a request that is odd, and a difference between the two parsers can't
// smuggle a request (RFC 9112, section 11.2).
package http1
