// Package probe checks what parking relies on in the process where it runs: the calls by which
// net/http waits for the next request, and the way in which crypto/tls reads. Neither package promises
// these, a test proves them for one version of Go only, and a program chooses its own version. So the
// first Server of a process calls [NetHTTP], and the first one that serves TLS calls [TLS].
//
// The probe plays short scripts of requests to a private http.Server, and records to a private
// *tls.Conn, on connections in memory. It takes two or three milliseconds, once per process, and needs
// nothing of the adapter. If a call differs from all the ways that are known, net/http gives no
// connection back in this process. Connections that wait without net/http, as on the fast path, don't
// depend on it.
package probe
