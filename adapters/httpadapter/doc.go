// Package httpadapter runs any http.Server on percore and parks its idle
// connections: one that waits for its next request holds no goroutine and no
// buffer, only some 400 bytes.
//
//	srv := &http.Server{Addr: ":8080", Handler: mux}
//	log.Fatal(httpadapter.Wrap(srv).ListenAndServe()) // was srv.ListenAndServe()
//
// Handlers, middleware and hooks stay as they are.
//
// The applications of gin, echo, chi and others are handlers: give them to an http.Server of your own
// instead of calling their Run or Start.
//
//	httpadapter.Wrap(&http.Server{Handler: engine}).Serve(ln) // was engine.RunListener(ln)
//
// A framework that has an http.Server of its own and takes a listener (gin's RunListener, Caddy) works
// on percore's too, but nothing is parked and there is no fast path. A listener doesn't learn of states,
// timeouts or Shutdown, so this package needs the http.Server.
//
// # How it works
//
// net/http serves each connection on a goroutine of its own, which between two
// requests waits in Read with two buffers of 4 KiB in its hands. Here that Read
// returns io.EOF when it has waited for [ParkAfter]. net/http takes that for the
// end of the connection: its goroutine closes the connection and returns, and its
// buffers go back to their pools. But it closed a lease only; the engine still
// has the socket, and calls back when there is something to read. Then Accept
// hands the same connection to net/http once more, as if it were new.
//
// net/http forgets its knowledge of the connection by that. It is kept here, or made
// up for:
//
//   - Hooks hear of connections, not of leases: ConnState gets
//     StateNew and StateClosed once, ConnContext is called once, BaseContext
//     once per Serve. All get the same net.Conn, which may be kept as a key.
//   - After a request net/http waits for four bytes of the next before it takes the
//     connection for active; if the client goes away before, it says nothing. After
//     parking it would answer "400 Bad Request". So the first bytes are held back
//     until there are four.
//   - After a POST it skips an empty line before the next request, which some old
//     clients send, and after other requests it refuses it. While parked it forgets,
//     so the method is remembered, and the line skipped, here.
//
// # Connections that are never parked
//
// Nothing is parked unless it is certain that net/http waits for a new request and
// has none of its bytes. Three things say so together: StateIdle came, and after it
// one call of SetReadDeadline, the wait's own (a second one would mean that it
// has found the beginning of the next request in its buffer), and then a Read into a
// slice as long as the buffer, so that nothing is in it. Hence these stay as they
// are, with their goroutine, and [Stats] counts them:
//
//   - connections with a request under way, and the Read with which net/http notices
//     during that time that a client goes away;
//   - connections that a client has sent a part of the next request on, even if only
//     the line break after a POST;
//   - hijacked connections, which belong to the user. They have all methods of
//     [percore.Conn], OnReadable and SetNoWait among them; for WebSockets there is package
//     wsadapter, and reactor.Server.Attach takes them. If bytes behind the request are not in the
//     bufio.Reader of Hijack yet, all methods that read begin with these, and SyscallConn's Read and
//     File, which can't, fail until they are read;
//   - HTTP/2 connections, over TLS and not: a protocol that shares a connection among
//     many requests keeps state for it. With [HTTP2] they don't need it: they wait
//     without a goroutine or a buffer;
//   - connections that are not a *percore.Conn: those of wrappers, such as
//     netutil.LimitListener's or a PROXY protocol's, whose Read and Close must not be
//     bypassed. MaxConns and ProxyProtocol of [percore.ListenConfig] do without a wrapper.
//
// A connection that has not sent a byte yet holds no goroutine either.
//
// Go 1.28 waits in another way: with a short read deadline first, after which it drops its buffers, and
// then in a Read of a single byte. There a Read may end in the first part, as above, and in the
// second, before its byte: one Read of full length has timed out by then, and one more call of
// SetReadDeadline has come.
//
// net/http promises none of these calls. So before a [Server] serves its first connection,
// scripts of requests are played to the net/http of this process, on connections in memory:
// once per process, for two or three milliseconds. If its calls are those of neither way, no
// connection comes back from net/http. A line in the http.Server's ErrorLog says so, and [Stats] has
// Unsafe. Connections that wait without net/http don't depend on that: those that have not sent a
// byte, those of [FastPath] as long as their requests are plain, and [Server.HandOver] of both.
//
// # Timeouts
//
// IdleTimeout goes on while a connection is parked. ReadHeaderTimeout and
// ReadTimeout begin with the first four bytes of a request, as usual, and for a new
// connection when it was accepted. (With a ReadTimeout and a ReadHeaderTimeout below
// 0, which means none, the time for the body begins with the first byte.) A timeout
// closes a parked connection without waking it.
//
// # TLS
//
// With ServeTLS the handshake is made by a goroutine of this package, on the first
// byte, within the time that net/http would give it. If it results in HTTP/1,
// net/http gets a connection that has a ConnectionState, from which it fills
// Request.TLS; it is parked above TLS, so that the session goes on. Its *tls.Conn
// stays, which is most of a parked connection's memory then: some kilobytes,
// depending on the largest record that was read. Otherwise, and for failed
// handshakes, net/http gets the *tls.Conn. The hooks always do, as they would from
// net/http; only Hijack, of a request that net/http serves, returns a type of this
// package with the methods of *tls.Conn. Read from that, not from the *tls.Conn of a hook:
// bytes behind the request may have been read already.
//
// crypto/tls promises little of what that relies on, so it is checked as well, with a client
// and a server in memory, before the first connection over TLS. If it reads in another way
// nothing is parked over TLS.
//
// The *tls.Conn that a tls.NewListener makes is not a *percore.Conn, and never parked: use
// ServeTLS.
//
// # The fast path
//
// The Server serves plain HTTP/1.1 requests without net/http: this package reads the request, calls srv.Handler,
// sends the answer, and waits for the next request without a goroutine or a buffer. The handler gets
// the same *http.Request as from net/http, fresh for each request, and an http.ResponseWriter that
// makes the same bytes of the same calls: implicit headers, sniffing, chunks, trailers, Flush, Hijack,
// sendfile, http.ResponseController, http.CloseNotifier. A client that goes away cancels the request's
// context, which takes no goroutine. Timeouts, hooks, panics, Shutdown and ErrorLog work as in net/http.
//
// Over TLS it serves the connections whose handshake has chosen HTTP/1.1, or no protocol. Request.TLS is
// one tls.ConnectionState for all requests of a connection, as with net/http, and Hijack returns the
// *tls.Conn.
//
// A request is plain if it is HTTP/1.1, its target begins with a slash, it has one valid Host and no
// field among Transfer-Encoding, Trailer, Expect, Upgrade, Pragma and HTTP2-Settings, its Connection is
// keep-alive or close or missing, and its header is not longer than 64 KiB. All other requests go to
// net/http with every byte that was read, and so do bytes that are no request: each "400 Bad Request" is
// net/http's. The connection comes back when net/http waits for the next request, or some requests
// later if its requests are declined again and again. It comes back by being parked, which [Stats]
// counts; if that has Unsafe it stays with net/http. [Server.FastPathStats] counts both kinds by reason.
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
// It pays on servers whose requests are small and whose handlers are short; the figures are in
// docs/BENCHMARKS.md.
//
// Apart from the differences below these remain:
//
//   - The type of the http.ResponseWriter, and that of Request.Body, are this package's. Code that
//     asks for interfaces notices nothing.
//   - A body that is larger than an http.MaxBytesReader allows is answered at once, and the connection
//     closed, wherever the reader is kept, and even if the ResponseWriter that the reader
//     was given is a middleware's, or an http.TimeoutHandler's: net/http reads up to 256 KiB of the body
//     before it answers then. The connection is not closed for that reason if the body is one byte too
//     large and came whole, or if there is a reader with a buffer between, such as a gzip.Reader. It is
//     closed as well if a handler fills the beginning of a larger slice from such a reader and leaves
//     the rest of the body.
//   - After Hijack the request's Body fails. With net/http it goes on reading from the connection.
//   - A Write after the handler has returned fails; net/http accepts it and drops the bytes.
//   - A handler that changes the Method or the protocol version of the request itself, not of a copy,
//     changes how net/http frames the answer. Here the client's request decides.
//
// And these are better than on net/http:
//
//   - A read deadline that passes while a handler runs cancels the context of its request alone. On
//     net/http those of all later requests of the connection are cancelled from their beginning.
//   - A body that is not read when a handler with full duplex returns, or that a middleware has closed
//     early, is treated as by Go 1.27, also on Go 1.26: its rest is never taken for a request.
//   - A body that is copied beyond its declared length is cut there, as by Go 1.27, also on Go 1.26.
//
// # HTTP/2
//
// The Server serves HTTP/2 without net/http, through package h2: a connection that waits, for its next stream or
// for its handlers, holds no goroutine and no buffer, and each stream is a call of srv.Handler on a
// goroutine of a pool. HTTP/1.1 goes on as without the option, also on the same port; with [FastPath]
// both go past net/http.
//
// A connection speaks HTTP/2 if its client has chosen "h2" in the TLS handshake, or if srv.Protocols
// has UnencryptedHTTP2 and it begins with HTTP/2's preface (prior knowledge). Whether a server offers
// that is decided by net/http's means: Protocols, TLSNextProto, GODEBUG=http2server=0.
//
// Handlers get the same *http.Request as from net/http's HTTP/2 server, and an http.ResponseWriter
// that makes the same frames of the same calls. MaxHeaderBytes, IdleTimeout, ReadTimeout,
// WriteTimeout, ConnState, ConnContext, BaseContext, ErrorLog, SetKeepAlivesEnabled, Shutdown and
// Close work, and so do the fields of http.HTTP2Config except CountError. WebSockets over HTTP/2 (RFC
// 8441) are as in net/http: off unless GODEBUG has http2xconnect=1 when the process starts; then a
// handler gets CONNECT with the header ":protocol", and talks through the body and the ResponseWriter.
// The differences are those of the fast path as far as they concern goroutines and types, and these:
//
//   - A client that takes nothing of what it is sent for 30 seconds loses its connection, unless
//     HTTP2Config.WriteByteTimeout says otherwise; net/http waits forever.
//   - When a client resets a stream, bytes of the body that the handler has not read are dropped, and a
//     handler that has not begun is not called.
//   - Shutdown sends two GOAWAYs, as RFC 9113 advises, so that no request that is on its way is lost;
//     net/http sends one, and drops them.
//   - Clients that exceed a limit lose their connection with ENHANCE_YOUR_CALM earlier, or for more
//     reasons, than with net/http. SECURITY.md has the limits.
//   - Push returns http.ErrNotSupported, also for clients that allow it.
//   - A Write after the handler has returned fails; net/http panics.
//
// docs/DIFFERENCES.md has the rest, which concerns clients and operators.
//
// A handler that is a [StreamHandler] serves some streams itself, past the http.Handler: those of gRPC,
// if it comes from the method Handler of grpcadapter's Server.
//
// # Differences
//
//   - Shutdown closes connections on which no request has begun at once, also during a
//     handshake. net/http waits for them for five seconds, and then closes
//     them unanswered. SetKeepAlivesEnabled(false) leaves them alone; net/http closes
//     those that are more than five seconds old.
//   - The context that is cancelled when a connection ends, from which those of its
//     requests derive, is also cancelled when it is parked. Requests have their own,
//     which ends with the request, so that only a handler that finds the parent notices.
//   - A header that is refused though it can be parsed, for lack of a Host say, is
//     answered without StateActive if it is the first after parking; one that
//     consists of empty lines and then ends, after a POST, likewise.
//   - An empty line before the first request after parking is skipped not only
//     after a POST but also when the method of the last request could not be seen,
//     mostly because it was pipelined.
//   - MaxHeaderBytes also counts the bytes that net/http reads while it waits for the next
//     request, up to 4 KiB, if it is the first after parking, as for the first of all.
//   - A Flush of a ResponseWriter after its handler has returned, which is wrong, panics
//     if the connection was parked since. With net/http it does so when the connection
//     has ended, and does nothing before.
//   - A read deadline that the user sets on a connection that was parked has no effect from
//     the moment when the next request begins to come until four bytes of it are there.
//   - A program that itself calls srv.ConnState with StateHijacked for a connection with a request
//     under way keeps it from being parked. Its other calls reach only its own hook.
//
// # Another process
//
// A server can be replaced without its clients noticing: [Server.HandOver] moves the connections that
// wait for a request to another process, each as soon as it waits. There it starts as an idle
// connection, if it has had requests: ConnState gets StateNew and StateIdle, IdleTimeout begins, and
// Shutdown closes it at once. Here ConnState gets StateClosed. Package handover moves them together
// with the listener.
//
// # Stopping
//
// Shutdown closes connections that wait, as net/http's does, and a client that sends a request at that
// moment loses it. [Server.Drain] lets such clients go first:
//
//	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
//	server.Drain(ctx) // "Connection: close" in each answer, GOAWAY
//	cancel()
//	server.Shutdown(context.Background())
//
// # Costs
//
// Being parked and woken costs some 10 µs of CPU time, about as much as a
// request on a connection in steady use: a new goroutine, buffers from the pools, a
// few allocations. See [DefaultParkAfter] for why that doesn't matter. A connection
// that isn't parked pays for two calls of the hook and four compare-and-swaps per
// request, two hundredths all in all, and for no lock, system call, clock or
// allocation. The benchmarks are beside the code.
//
// Memory that connections don't take is also missing from the heap whose growth makes
// the garbage collector run. With thousands of parked connections and a busy rest it
// may run twenty times a second, where on package net it runs once. If there is
// memory to spare give some of it back: GOGC=400, say, or a GOMEMLIMIT with GOGC=off
// (https://go.dev/doc/gc-guide).
//
// # Platforms
//
// Off Linux, and with the build tag percore_net, nothing is parked and everything
// works.
package httpadapter
