// Package h2spec runs h2spec, which tests servers of HTTP/2 by what RFC 7540 and RFC 7541 demand,
// against percore's server: below an http.Server, with and without the fast path, and at the level
// of streams. Each of them serves in clear and over TLS. net/http's server runs as well, for
// comparison.
package h2spec
