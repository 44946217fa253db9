// Package httpadapter runs any http.Server on percore.
//
//	ln, err := percore.Listen("tcp", ":8080") // was net.Listen
//	srv := &http.Server{Handler: mux}
//	err = httpadapter.Serve(srv, ln) // was srv.Serve(ln)
//
// Handlers, middleware and hooks stay as they are. The package serves plain HTTP/1.1 requests and
// HTTP/2 itself, for less CPU time, and leaves everything else to net/http. A connection that waits for
// its next request holds no goroutine and no buffer, only some 400 bytes. [Wrap] returns a [Server]
// with options; [NetHTTP1], [NetHTTP2] and [NoParking] each turn one part off.
//
// The applications of gin, echo, chi and others are handlers: give them to an http.Server of your own
// instead of calling their Run or Start.
//
// # HTTP/1.1
//
// A request is plain if it is HTTP/1.1, its target begins with a slash, it has one valid Host and no
// field among Transfer-Encoding, Trailer, Expect, Upgrade, Pragma and HTTP2-Settings, its Connection is
// keep-alive or close or missing, and its header is not longer than 64 KiB. Anything else goes to
// net/http, with every byte that was read. [Server.FastPathStats] counts both kinds.
//
// For a plain request the handler gets the *http.Request that net/http would make, and an
// http.ResponseWriter that sends the same bytes. Timeouts, hooks, panics, Shutdown and ErrorLog work as
// in net/http, and a client that goes away cancels the request's context. Hijack returns a connection
// with all methods of [percore.Conn], or over TLS the *tls.Conn.
//
// # HTTP/2
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and it begins with HTTP/2's preface. Protocols, TLSNextProto and
// GODEBUG=http2server=0 decide whether a server offers it, and http.HTTP2Config works. A handler that
// is a [StreamHandler], such as grpcadapter's, serves some streams itself.
//
// # Answers that wait
//
// Events, long polls and the progress of a job hold no goroutine while they wait if the handler calls
// [Detach]: it returns, and any goroutine writes to the [Stream]. Where net/http serves the connection
// the same program keeps the handler's goroutine. Stats has Detached, and [Server.RegisterOnDrain] lets
// the program end its Streams before Shutdown, which waits for them. This part is experimental.
//
// # Parking
//
// net/http serves a connection on a goroutine that waits for the next request with two buffers of 4 KiB.
// After [ParkAfter] its Read returns io.EOF, so net/http lets go. The engine keeps the socket, and the
// next request is served as on a new connection. Hooks don't notice.
//
// A connection stays with net/http while a request or a part of one is there, if it is hijacked, and if
// the listener is a wrapper, such as netutil.LimitListener's. Use MaxConns and ProxyProtocol of
// [percore.ListenConfig], and [Server.ServeTLS], instead of wrappers.
//
// net/http doesn't promise how it waits, nor crypto/tls how it reads. So a process tries both in memory
// at its first connection, for two or three milliseconds. If one behaves in an unknown way, what relies
// on it is off: a line in the ErrorLog says so, and [Stats] has Unsafe.
//
// # Goroutines
//
// Handlers run on goroutines that serve one connection after the other. In between, profile labels and
// debug.SetPanicOnFault are reset, and a goroutine that is still locked to its thread ends. A library
// that files values under the number of a goroutine must remove them.
//
// # Stopping, and another process
//
// Shutdown closes connections that wait, as net/http's does, and a client that sends a request at that
// moment loses it. [Server.Drain] lets such clients go first, with "Connection: close" and GOAWAY.
// [Server.HandOver] moves the connections that wait for a request to another process; package handover
// moves them together with the listener.
//
// Off Linux, and with the build tag percore_net, net/http serves everything. docs/DIFFERENCES.md lists
// the differences from net/http, and docs/LIMITS.md the limits. docs/OPERATIONS.md says what to do if
// the garbage collector runs often because the heap is small.
package httpadapter
