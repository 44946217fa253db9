// Package h2spec runs h2spec, which tests HTTP/2 servers against RFC 7540 and RFC 7541, against
// percore's server: below an http.Server, with and without the fast path, and at the level of
// streams, each in cleartext and over TLS. net/http's server runs as well, for comparison.
package h2spec
