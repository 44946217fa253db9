// Package reactor runs event handlers on percore's loops, for protocols that need no goroutine per
// connection, as in a broker, gateway, cache, game or chat server. An idle connection takes some
// hundred bytes, one system call answers a pipelined burst, and one message goes to thousands of
// connections without a copy for each.
//
//	ln, err := percore.Listen("tcp", ":7000")
//	...
//	err = reactor.Serve(ln, echo{}, reactor.Config{})
//
//	type echo struct{}
//
//	func (echo) Open(c *reactor.Conn) {}
//	func (echo) Data(c *reactor.Conn, p []byte) int { c.Write(p); return len(p) }
//	func (echo) Close(c *reactor.Conn, err error) {}
//
// Most servers are better off with blocking code on percore.Listen: it is simpler, and costs about
// the same time per message. A connection can switch between the two: [Conn.Hijack] gives it to
// blocking code, with the bytes that were read and not used, and [Server.Attach] takes it back.
//
// # Loops
//
// All callbacks of a connection run on its loop, one at a time, and so do those of all other
// connections on that loop: a handler that Config.LoopHandler makes for each loop needs no lock. The
// listener decides which loops these are: percore.ListenConfig.Group says how many there are and how
// they wait. A server that does nothing else can run loops on threads of their own:
//
//	group, err := loop.NewGroup(loop.Config{Strategy: loop.Thread, Pin: true})
//	lc := percore.ListenConfig{Group: group}
//
// Without a Group, a listener uses the default loops of the process, as an http.Server on
// percore.Listen does. A callback that blocks holds up everything on its loop, so give a server
// whose handler may block a Group of its own.
//
// A callback must leave the loop's goroutine as it was: its profile labels (runtime/pprof),
// debug.SetPanicOnFault, and runtime.LockOSThread affect all connections of the loop. Functions of
// [Conn.Go] run on goroutines that serve several connections. A goroutine is reset after each function;
// if it is still locked to its thread it ends, and the thread with it.
//
// # Flow control
//
// Write never blocks: bytes that the socket does not take wait in memory, the backlog ([Conn.Unsent]).
// Two fields of Config bound it, and no stream goes on after a gap:
//
//	event                             Handler                      WritableHandler
//	more bytes wait than              Data isn't called and nothing is read, until half as many wait
//	WriteHighWaterMark                                             then Writable is called
//	Write, WriteBuffers,              the call fails; Close with   the call fails; its caller decides;
//	WriteShared: more than            ErrWriteBufferFull           Writable is called when none wait
//	WriteHardLimit would wait
//	Broadcast: the same               its function is called with the connection; without one, Close
//	                                  with ErrWriteBufferFull
//	broadcasts of more than           a connection whose Data calls Broadcast isn't read, until half as
//	WriteHighWaterMark wait           many wait
//	more than WriteHardLimit of       Broadcast fails, for all connections
//	them would wait
//	sending fails                     Close with the error
//	Conn.Close, CloseWrite            later writes fail with net.ErrClosed
//	Pause                             Data isn't called and nothing is read, until Resume
//	bytes wait for longer than        Close with os.ErrDeadlineExceeded
//	WriteTimeout, if that is set
//	the peer takes nothing for long   the same by IdleTimeout and WriteIdleTimeout, if they are set; or
//	                                  after a minute, if the connection is ending
//
// A connection that ends before everything written is sent, or because a write was refused, is
// reset, so that its peer doesn't take a part for the whole. See [Conn.Abort].
//
// The socket is tried before a write is refused. A write is taken whole or not at all; if no bytes wait
// it may have any length. Close sends the backlog first, Abort drops it; Hijack and Attach pass it on.
//
// So a peer that doesn't read the answers to its requests only holds up itself. A server that writes
// unasked should stop while Unsent is more than WriteHighWaterMark, and go on in Writable. A server
// that passes bytes from one connection to another should pause the first while the second has no
// room: see [Conn.Resume].
//
// # Platforms
//
// Off Linux, and with the build tag percore_net, each connection has a goroutine that reads. The
// rest is the same, except for timeouts: written bytes count only when the socket has taken all of
// them, 32 KiB at a time, so a slow reader may be closed as if it didn't read at all.
package reactor
