// Package probe checks what parking relies on in the running process: how net/http waits for the
// next request. net/http doesn't promise it. A test proves it for only one version of Go, and a
// program chooses its own version. So the first Server of a process calls [NetHTTP]. (What percore
// relies on in crypto/tls is checked by package tlsread.)
//
// The probe plays short scripts of requests to a private http.Server over connections in memory. It
// takes two or three milliseconds, once per process, and needs nothing from the adapter. If a call
// differs from all known ways, net/http gives no connection back in this process. Connections that
// wait without net/http, as on the fast path, don't depend on it.
package probe
