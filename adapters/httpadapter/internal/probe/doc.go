// Package probe checks what parking relies on in the running process: how net/http waits for the
// next request, and how crypto/tls reads. Neither package promises these. A test proves them for
// only one version of Go, and a program chooses its own version. So the first Server of a process
// calls [NetHTTP], and the first one that serves TLS calls [TLS].
//
// The probe plays short scripts of requests to a private http.Server, and records to a private
// *tls.Conn, over connections in memory. It takes two or three milliseconds, once per process, and
// needs nothing from the adapter. If a call differs from all known ways, net/http gives no
// connection back in this process. Connections that wait without net/http, as on the fast path,
// don't depend on it.
package probe
