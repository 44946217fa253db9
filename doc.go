// Package percore is a drop-in [net.Listener] for Linux. Where a server says
// net.Listen it says [Listen], and its unchanged http.Server, grpc.Server or
// plain net.Conn code then runs on a per-core epoll engine that makes fewer
// system calls and wake-ups per request.
//
//	l, err := percore.Listen("tcp", ":8080") // was net.Listen
//	http.Serve(l, handler)
//
// # Guarantees
//
// Everything that package net promises of a Listener and a Conn: blocking
// calls, deadlines, half-close, concurrency, addresses, error types and texts.
// The differences are in one table, docs/DIFFERENCES.md.
//
// Connections that wait keep the things that the code above them keeps: a goroutine in Read and
// its buffers. Package adapters/httpadapter, [Conn.OnReadable] and [Conn.ReadReady] do without.
//
// # How it works
//
// Loops, up to one per core, wait for events (package loop). A further loop is in use
// when those before it have many connections. A
// loop only marks a connection ready and wakes the goroutine that waits for it;
// that goroutine then reads into its own slice. See docs/ARCHITECTURE.md.
//
// # Platforms
//
// On anything but Linux, Listen is net.Listen behind the same types. The build
// tag percore_net has the same effect on Linux: it takes the engine out of a
// program without changing a line of it.
//
// On Linux the environment can take it out of a program that is there already: with
// PERCOREDEBUG=engine=net, which each Listen, FileListener and Dial looks up, they return package
// net's own listeners and connections, and a line in slog's default logger says so. MaxConns, OnAccept,
// OnClose and ProxyProtocol keep their effect ([ListenConfig]). Code that takes the results for a
// *[Listener] or a *[Conn] without asking fails then. DialTCP and DialUnix of a [Dialer], whose
// results are a *Conn, stay with the engine.
package percore
