// Package httpadapter runs any http.Server on percore.
//
//	ln, err := percore.Listen("tcp", ":8080") // was net.Listen
//	srv := &http.Server{Handler: mux}
//	err = httpadapter.Serve(srv, ln) // was srv.Serve(ln)
//
// Handlers, middleware and hooks stay as they are. The package serves plain HTTP/1.1 requests and
// HTTP/2 itself, for less CPU time, and leaves everything else to net/http; a connection that waits for
// its next request holds no goroutine and no buffer, only some 400 bytes. [Wrap] returns a [Server]
// with options and with [Server.Stats], [Server.Drain] and [Server.HandOver]. The options [NetHTTP1],
// [NetHTTP2] and [NoParking] each turn one part off.
//
// The applications of gin, echo, chi and others are handlers: give them to an http.Server of your own
// instead of calling their Run or Start. A framework that insists on its own http.Server can be given
// percore's listener, but then net/http serves.
//
// # HTTP/1.1
//
// A request is plain if it is HTTP/1.1, its target begins with a slash, it has one valid Host and no
// field among Transfer-Encoding, Trailer, Expect, Upgrade, Pragma and HTTP2-Settings, its Connection is
// keep-alive or close or missing, and its header is not longer than 64 KiB. All other requests, and
// bytes that are no request, go to net/http with every byte that was read. [Server.FastPathStats]
// counts both kinds by reason.
//
// For a plain request the handler gets the same *http.Request as from net/http, fresh for each, and an
// http.ResponseWriter that makes the same bytes of the same calls. A client that goes away cancels the
// request's context. Timeouts, hooks, panics, Shutdown and ErrorLog work as in net/http. Hijack returns
// a connection with all methods of [percore.Conn], or over TLS the *tls.Conn.
//
// # HTTP/2
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and it begins with HTTP/2's preface (prior knowledge). Protocols, TLSNextProto
// and GODEBUG=http2server=0 decide whether a server offers it, as in net/http, and the fields of
// http.Server and http.HTTP2Config work. A handler that is a [StreamHandler] serves some streams
// itself, past the http.Handler: those of gRPC, if it comes from the method Handler of grpcadapter's
// Server.
//
// # Parking
//
// net/http serves each connection on a goroutine of its own, which between two requests waits in Read
// with two buffers of 4 KiB. When it has waited for [ParkAfter], that Read returns io.EOF, so net/http
// lets go of the connection. The engine still has the socket, and calls back when there is something to
// read; then the connection is served as if it were new. Hooks don't notice: ConnState gets StateNew and
// StateClosed once, and ConnContext is called once.
//
// A connection stays with net/http, which [Stats] counts, if a request is under way on it, if part of
// the next one has come, if it is hijacked, and if it isn't a *percore.Conn but a wrapper's, such as
// netutil.LimitListener's. MaxConns and ProxyProtocol of [percore.ListenConfig] do without a wrapper,
// and [Server.ServeTLS] does without tls.NewListener.
//
// net/http doesn't promise how it waits, and crypto/tls doesn't promise how it reads. So the first
// connection of a process waits for two or three milliseconds, in which both are tried in memory. If
// they behave in another way than parking relies on, connections that net/http serves stay there, or
// nothing waits over TLS without a goroutine. A line in the http.Server's ErrorLog says so, and [Stats]
// has Unsafe. The ways of Go 1.26 to 1.28 are known.
//
// # Goroutines
//
// Handlers run on goroutines that serve one connection after the other, and two requests of a
// connection may run on different ones. After each turn profile labels (runtime/pprof) and
// debug.SetPanicOnFault are reset, and a goroutine that is still locked to its thread
// (runtime.LockOSThread) ends, and the thread with it. A library that files values under the number of
// a goroutine must remove them when a handler returns. A region of runtime/trace that a handler has not
// ended stays open. The goroutines don't inherit the labels of the one that called Serve.
//
// # Stopping, and another process
//
// Shutdown closes connections that wait, as net/http's does, and a client that sends a request at that
// moment loses it. [Server.Drain] lets such clients go first, with "Connection: close" and GOAWAY.
// [Server.HandOver] moves the connections that wait for a request to another process; package handover
// moves them together with the listener.
//
// docs/DIFFERENCES.md lists the differences from net/http, docs/LIMITS.md the limits,
// docs/BENCHMARKS.md the figures, and docs/OPERATIONS.md says what to do about a garbage collector that
// runs often because the heap is small. Off Linux, and with the build tag percore_net, net/http serves
// everything.
package httpadapter
