// Package percore is a drop-in [net.Listener] for Linux. A server calls [Listen] instead of
// net.Listen, and its unchanged http.Server, grpc.Server or plain net.Conn code then runs on a
// per-core epoll engine that makes fewer system calls and wake-ups per request.
//
//	l, err := percore.Listen("tcp", ":8080") // was net.Listen
//	// ...
//	err = httpadapter.Serve(srv, l) // was srv.Serve(l); srv is an *http.Server
//
// With the listener alone, srv.Serve(l), a server works as well. Package adapters/httpadapter is what
// makes it faster, and its idle connections cost next to nothing there.
//
// # Guarantees
//
// Everything that package net promises of a Listener and a Conn: blocking calls, deadlines,
// half-close, concurrency, addresses, error types and texts. The differences are in one table,
// docs/DIFFERENCES.md.
//
// # Waiting without a goroutine or a buffer
//
// A connection that waits in Read costs what the code above it keeps: a goroutine and its buffers.
// Servers of HTTP, gRPC and WebSockets get rid of them with adapters/httpadapter,
// adapters/grpcadapter and adapters/wsadapter; adapters/reactor is for new protocols. Code that keeps
// many idle connections itself has three ways to wait, each cheaper than the one before:
//
//	ReadReady       Your goroutine waits as in Read, but asks for its buffer only when there is
//	                something to read. For loops of blocking code, which stay as they are.
//	OnReadable      Nothing waits. A function is called once when a Read may not block, and
//	                passes the connection to a goroutine. For code that needs nothing between two
//	                messages.
//	NotifyReadable  OnReadable for an object that exists anyway, such as your session: no memory at
//	                all. The object has to refer to the connection, or both are garbage.
//
// After a callback [Conn.TryRead] reads without waiting. [Conn.CancelOnReadable] disarms a
// callback. The callback doesn't know of bytes that a reader above the connection has buffered:
// read them first, or find out with [Conn.SetNoWait] whether there are any. Off Linux ReadReady
// asks for its buffer at once, and the callbacks fail with an error that wraps
// [errors.ErrUnsupported]: wait in Read there.
//
// # How it works
//
// Loops, up to one per core, wait for events (package loop). Another loop is used only when those
// before it have many connections. A loop marks a connection ready and wakes the goroutine that waits
// for it; that goroutine then reads into its own slice. See docs/ARCHITECTURE.md.
//
// # Platforms
//
// Off Linux, Listen is net.Listen behind the same types. The build tag percore_net has the same
// effect on Linux: it takes the engine out of a program without changing a line of it.
//
// On Linux the environment can take the engine out of a program that is already built: with
// PERCOREDEBUG=engine=net Listen, FileListener and Dial, which check it in each call, return
// package net's own listeners and connections, and a line in slog's default logger says so.
// MaxConns, OnAccept, OnClose and ProxyProtocol still work ([ListenConfig]). Code that asserts a
// *[Listener] or a *[Conn] without checking panics then. DialTCP and DialUnix of a [Dialer], which
// return a *Conn, stay with the engine. All adapters work except package reactor, which has no loops
// then, and package handover refuses to move anything: docs/OPERATIONS.md has a table.
package percore
