// Package httpadapter runs any http.Server on percore.
//
//	ln, err := percore.Listen("tcp", ":8080") // was net.Listen
//	srv := &http.Server{Handler: mux}
//	err = httpadapter.Serve(srv, ln) // was srv.Serve(ln)
//
// Handlers, middleware and hooks stay as they are. The package serves HTTP/1 and HTTP/2 with less
// CPU time than net/http. A connection that waits for its next request holds no goroutine and no
// buffer, only some 400 bytes; if it waits for the rest of a header, it also holds the bytes that
// have come. [Wrap] returns a [Server] with options and counters.
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
// it has one valid Host, none of the fields Transfer-Encoding, Trailer, Expect, Upgrade and
// HTTP2-Settings, a Connection field that is missing or says keep-alive or close, and a header of at
// most 64 KiB and 48 fields. The package parses plain requests itself. It reads odd ones with
// [http.ReadRequest], so net/http decides what they mean, and which are refused. They cost a little
// more, so [Server.Stats] counts them, by reason.
//
// net/http itself serves connections of types other than *percore.Conn, such as those of
// netutil.LimitListener. Use MaxConns and ProxyProtocol of [percore.ListenConfig] instead of wrappers.
// Wrapping percore's listener with tls.NewListener works as well as [Server.ServeTLS]. crypto/tls
// doesn't promise how it reads, so the first TLS connection of a process makes the package test that in
// memory. If crypto/tls behaves in an unknown way, net/http serves TLS: a line in the ErrorLog says so,
// and [Stats] has Unsafe. With PERCOREDEBUG=http=net, net/http serves everything.
//
// # HTTP/2
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and the connection begins with the HTTP/2 preface. Protocols, TLSNextProto
// and GODEBUG=http2server=0 decide whether a server offers HTTP/2, and http.HTTP2Config works. A
// handler that is a [StreamHandler], such as grpcadapter's, serves some streams itself. Functions
// that the program has put into TLSNextProto get their connections as with net/http.
//
// # Answers that wait
//
// A handler that sends events, answers long polls or reports the progress of a job can call
// [Detach]. It returns, and any goroutine writes to the [Answer], so waiting holds no goroutine.
// Where net/http serves the connection, the same program works, but keeps the handler's goroutine.
// Stats has Detached. Shutdown waits for detached answers, and [Server.RegisterOnDrain] lets the
// program end its Streams before that. This part is experimental.
//
// # Goroutines
//
// Handlers run on goroutines that serve one connection after the other. In between, profile labels
// and debug.SetPanicOnFault are reset, and a goroutine that is still locked to its thread ends. A
// library that stores values by goroutine number must remove them itself.
//
// # Stopping, and another process
//
// Shutdown closes connections that wait, as in net/http, and a client that sends a request at that
// moment loses it. [Server.Drain] avoids that: it first sends clients away, with "Connection: close"
// and GOAWAY. [Server.HandOver] moves the connections that wait for a request to another process;
// package handover moves them together with the listener.
//
// Off Linux, with the build tag percore_net, and in bubbles of testing/synctest, net/http serves
// everything. docs/DIFFERENCES.md lists the differences from net/http, and docs/LIMITS.md the
// limits. docs/OPERATIONS.md says what to do if the garbage collector runs often because the heap is
// small.
package httpadapter
