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
// instead of calling their Run or Start. A framework that has an http.Server of its own and takes a
// listener works on percore's, too, but net/http serves: a listener doesn't learn of states, timeouts or
// Shutdown, so this package needs the http.Server.
//
// # HTTP/1.1
//
// A request is plain if it is HTTP/1.1, its target begins with a slash, it has one valid Host and no
// field among Transfer-Encoding, Trailer, Expect, Upgrade, Pragma and HTTP2-Settings, its Connection is
// keep-alive or close or missing, and its header is not longer than 64 KiB. All other requests go to
// net/http with every byte that was read, and so do bytes that are no request: each "400 Bad Request"
// is net/http's. [Server.FastPathStats] counts both kinds by reason.
//
// For a plain request the handler gets the same *http.Request as from net/http, fresh for each, and an
// http.ResponseWriter that makes the same bytes of the same calls: implicit headers, sniffing, chunks,
// trailers, Flush, Hijack, sendfile, http.ResponseController, http.CloseNotifier. A client that goes
// away cancels the request's context. Timeouts, hooks, panics, Shutdown and ErrorLog work as in
// net/http. Hijack returns a connection with all methods of [percore.Conn], or over TLS the *tls.Conn.
//
// # HTTP/2
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and it begins with HTTP/2's preface (prior knowledge). Whether a server offers
// that is decided by net/http's means: Protocols, TLSNextProto, GODEBUG=http2server=0. Package h2 serves
// it: each stream is a call of srv.Handler, and MaxHeaderBytes, IdleTimeout, ReadTimeout, WriteTimeout,
// ConnState, ConnContext, BaseContext, ErrorLog, SetKeepAlivesEnabled, Shutdown, Close and the fields of
// http.HTTP2Config work. WebSockets over HTTP/2 (RFC 8441) are as in net/http: off unless GODEBUG has
// http2xconnect=1 when the process starts.
//
// A handler that is a [StreamHandler] serves some streams itself, past the http.Handler: those of gRPC,
// if it comes from the method Handler of grpcadapter's Server.
//
// # Parking
//
// net/http serves each connection on a goroutine of its own, which between two requests waits in Read
// with two buffers of 4 KiB. When it has waited for [ParkAfter], that Read returns io.EOF. net/http
// takes it for the end of the connection: its goroutine returns, and its buffers go back to their
// pools. But it closed a lease only; the engine still has the socket, and calls back when there is
// something to read. Then the connection is served as if it were new. Hooks hear of connections, not of
// leases: ConnState gets StateNew and StateClosed once, and ConnContext is called once.
//
// A connection stays with net/http, which [Stats] counts, if a request is under way on it, if part of
// the next one has come, if it is hijacked, and if it isn't a *percore.Conn but a wrapper's, such as
// netutil.LimitListener's: its Read and Close must not be bypassed. MaxConns and ProxyProtocol of
// [percore.ListenConfig] do without a wrapper, and [Server.ServeTLS] does without tls.NewListener.
//
// # What is checked where it runs
//
// net/http doesn't promise how it waits, and crypto/tls doesn't promise how it reads. So before a
// Server serves its first connection, scripts of requests are played to the net/http and the crypto/tls
// of this process, on connections in memory, for two or three milliseconds. If they behave in another
// way than parking relies on, connections that net/http serves stay there, or nothing waits over TLS
// without a goroutine. A line in the http.Server's ErrorLog says so, and [Stats] has Unsafe. The ways
// of Go 1.26 to 1.28 are known.
//
// # Goroutines
//
// Handlers run on goroutines that serve one connection after the other; with net/http a connection has
// a goroutine of its own. The state of a goroutine does not reach another client: after each turn its
// profile labels (runtime/pprof) and debug.SetPanicOnFault are reset, and a goroutine that is still
// locked to its thread (runtime.LockOSThread) ends, and the thread with it. Two requests of a connection
// may run on different goroutines, so what one leaves there the next may not find. A region of
// runtime/trace that a handler has not ended stays open in the trace of its goroutine, and a library
// that files values under the number of a goroutine must remove them when a handler returns. The
// goroutines don't inherit the labels of the one that called Serve.
//
// # Stopping, and another process
//
// Shutdown closes connections that wait, as net/http's does, and a client that sends a request at that
// moment loses it. [Server.Drain] lets such clients go first, with "Connection: close" and GOAWAY:
//
//	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
//	server.Drain(ctx)
//	cancel()
//	server.Shutdown(context.Background())
//
// [Server.HandOver] moves the connections that wait for a request to another process, each as soon as it
// waits. Package handover moves them together with the listener.
//
// # Costs
//
// A request on a connection that net/http has parked costs some 10 µs of CPU time more, about as much
// as the request: see [DefaultParkAfter] for why that doesn't matter.
//
// Memory that connections don't take is also missing from the heap whose growth makes the garbage
// collector run. With thousands of waiting connections and a busy rest it may run twenty times a
// second, where on package net it runs once. If there is memory to spare give some of it back:
// GOGC=400, say, or a GOMEMLIMIT with GOGC=off (https://go.dev/doc/gc-guide).
//
// The differences from net/http are in docs/DIFFERENCES.md, the limits in docs/LIMITS.md, and the
// figures in docs/BENCHMARKS.md. Off Linux, and with the build tag percore_net, net/http serves
// everything.
package httpadapter
