// Package httpadapter runs any http.Server on percore.
//
//	ln, err := percore.Listen("tcp", ":8080") // was net.Listen
//	srv := &http.Server{Handler: mux}
//	err = httpadapter.Serve(srv, ln) // was srv.Serve(ln)
//
// Handlers, middleware and hooks stay as they are. The package serves HTTP/1 and HTTP/2 for less CPU
// time than net/http. A connection that waits for its next request holds no goroutine and no buffer,
// only some 400 bytes; one that waits for the rest of a header also holds the bytes that have come.
// [Wrap] returns a [Server] with options and counters.
//
// The applications of gin, echo, chi and others are handlers: give them to an http.Server of your
// own instead of calling their Run or Start.
//
// # HTTP/1
//
// The handler gets the *http.Request that net/http would make, and an http.ResponseWriter that sends
// the same bytes. Timeouts, hooks, panics, Shutdown and ErrorLog work as in net/http, and a client
// that goes away cancels the request's context. Hijack returns a connection with all methods of
// [percore.Conn], or over TLS the *tls.Conn.
//
// Requests are plain or odd. A request is plain if it is HTTP/1.1, its target begins with a slash,
// it has one valid Host and no field among Transfer-Encoding, Trailer, Expect, Upgrade and
// HTTP2-Settings, its Connection is keep-alive or close or missing, and its header has at most 64
// KiB and 48 fields. The package parses plain requests itself. All others are read by
// [http.ReadRequest], so net/http decides what they mean, and which are refused. [Server.Stats]
// counts them by the reason, since they cost a little more.
//
// net/http itself serves connections of types other than *percore.Conn, such as those of
// netutil.LimitListener. Use MaxConns and ProxyProtocol of [percore.ListenConfig] instead of
// wrappers. A listener that tls.NewListener has made of percore's is as good as [Server.ServeTLS].
// crypto/tls doesn't promise how it reads, so a process tries it in memory at its first connection
// over TLS. If it behaves in an unknown way net/http serves TLS: a line in the ErrorLog says so, and
// [Stats] has Unsafe. With PERCOREDEBUG=http=net net/http serves everything.
//
// # HTTP/2
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and it begins with HTTP/2's preface. Protocols, TLSNextProto and
// GODEBUG=http2server=0 decide whether a server offers it, and http.HTTP2Config works. A handler
// that is a [StreamHandler], such as grpcadapter's, serves some streams itself. Functions that the
// program has put into TLSNextProto get their connections as from net/http.
//
// # Answers that wait
//
// Events, long polls and the progress of a job hold no goroutine while they wait if the handler
// calls [Detach]: it returns, and any goroutine writes to the [Answer]. Where net/http serves the
// connection the same program keeps the handler's goroutine. Stats has Detached, and
// [Server.RegisterOnDrain] lets the program end its Streams before Shutdown, which waits for them.
// This part is experimental.
//
// # Goroutines
//
// Handlers run on goroutines that serve one connection after the other. In between, profile labels
// and debug.SetPanicOnFault are reset, and a goroutine that is still locked to its thread ends. A
// library that files values under the number of a goroutine must remove them.
//
// # Stopping, and another process
//
// Shutdown closes connections that wait, as net/http's does, and a client that sends a request at
// that moment loses it. [Server.Drain] lets such clients go first, with "Connection: close" and
// GOAWAY. [Server.HandOver] moves the connections that wait for a request to another process;
// package handover moves them together with the listener.
//
// Off Linux, with the build tag percore_net, and in bubbles of testing/synctest, net/http serves
// everything. docs/DIFFERENCES.md lists the differences from net/http, and docs/LIMITS.md the
// limits. docs/OPERATIONS.md says what to do if the garbage collector runs often because the heap is
// small.
package httpadapter
