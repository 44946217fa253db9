// Package percore is a drop-in [net.Listener] for Linux. A server calls [Listen] instead of
// net.Listen, and its unchanged http.Server, grpc.Server or plain net.Conn code then runs on a
// per-core epoll engine that makes fewer system calls and wake-ups per request.
//
//	l, err := percore.Listen("tcp", ":8080") // was net.Listen
//	// ...
//	err = httpadapter.Serve(srv, l) // was srv.Serve(l); srv is an *http.Server
//
// srv.Serve(l) works as well, with the listener alone. It is package adapters/httpadapter that makes
// a server faster, and lets its idle connections cost next to nothing.
//
// # Guarantees
//
// percore keeps everything that package net promises about a Listener and a Conn: blocking calls,
// deadlines, half-close, concurrency, addresses, error types and texts. docs/DIFFERENCES.md lists
// the differences in one table.
//
// # Waiting without a goroutine or a buffer
//
// A connection that waits in Read costs whatever the code above it keeps: a goroutine and its
// buffers. adapters/httpadapter, adapters/grpcadapter and adapters/wsadapter free servers of HTTP,
// gRPC and WebSockets from that; adapters/reactor is for new protocols. Code that keeps many idle
// connections itself has three ways to wait, each cheaper than the one before:
//
//	ReadReady       Your goroutine waits as in Read, but asks for its buffer only when there is
//	                something to read. For loops of blocking code, which stay as they are.
//	OnReadable      Nothing waits. A function is called once when a Read may not block, and
//	                passes the connection to a goroutine. For code that needs nothing between two
//	                messages.
//	NotifyReadable  OnReadable for an object that exists anyway, such as your session: no memory at
//	                all. The object has to refer to the connection, or both are garbage.
//
// After a callback, [Conn.TryRead] reads without waiting. [Conn.CancelOnReadable] disarms a
// callback. A callback doesn't know about bytes that a reader above the connection has buffered:
// read them first, or use [Conn.SetNoWait] to find out whether there are any. Off Linux, ReadReady
// asks for its buffer at once, and arming a callback fails with an error that wraps
// [errors.ErrUnsupported]: wait in Read there.
//
// # How it works
//
// Loops, up to one per core, wait for events (package loop). Another loop is used only when the
// loops before it have many connections. A loop marks a connection ready and wakes the goroutine
// that waits for it; that goroutine then reads into its own slice. See docs/ARCHITECTURE.md.
//
// # Platforms
//
// Off Linux, Listen is net.Listen behind the same types. The build tag percore_net has the same
// effect on Linux: it takes the engine out of a program without changing a line of it.
//
// On Linux the environment can take the engine out of a program that is already built. With
// PERCOREDEBUG=engine=net, which every call checks, Listen, FileListener and Dial return package
// net's own listeners and connections, and a line in slog's default logger says so. MaxConns,
// OnAccept, OnClose and ProxyProtocol still work ([ListenConfig]). Code that asserts a *[Listener]
// or a *[Conn] without checking panics then. DialTCP and DialUnix of a [Dialer], which return a
// *Conn, still use the engine. All adapters work except package reactor, which then has no loops,
// and package handover refuses to move anything: docs/OPERATIONS.md has a table.
package percore
