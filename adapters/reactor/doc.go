// Package reactor runs event handlers on percore's loops: servers whose protocol wants no
// goroutine per connection. Brokers, gateways, caches, game and chat servers keep a connection
// that waits in some hundred bytes, answer a pipelined burst by one system call, and send one
// message to thousands of connections without a copy for each.
//
//	ln, err := percore.Listen("tcp", ":7000")
//	...
//	err = reactor.Serve(ln, echo{})
//
//	type echo struct{}
//
//	func (echo) Open(c *reactor.Conn) {}
//	func (echo) Data(c *reactor.Conn, p []byte) int { c.Write(p); return len(p) }
//	func (echo) Close(c *reactor.Conn, err error) {}
//
// Most servers are better off with blocking code on percore.Listen: it is simpler, and costs about
// the same time per message. A connection can change between both: [Conn.Detach] hands it, with the
// bytes that are read and not used, to blocking code, and [Server.Attach] takes it back.
//
// # Loops
//
// All callbacks of a connection run on its loop, one at a time, and so do those of all other
// connections on that loop: a handler that the option [PerLoop] makes for each loop needs no lock.
// The loops are those of the listener: percore.ListenConfig.Group says how many there are and how
// they wait. For servers that do nothing else, loops on threads of their own:
//
//	group, err := loop.NewGroup(loop.Config{Strategy: loop.Thread, Pin: true})
//	lc := percore.ListenConfig{Group: group}
//
// A callback must leave the loop's goroutine as it was: its profile labels (runtime/pprof),
// debug.SetPanicOnFault, and runtime.LockOSThread concern all connections of the loop. Functions of
// [Conn.Go] run on goroutines that serve several connections. These are reset after each function, and
// one that is still locked to its thread ends, and the thread with it.
//
// # Peers that don't take what is written
//
// Write never blocks: bytes that the socket does not take wait in memory, the backlog. Two options
// bound it, and no stream goes on after a gap:
//
//	event                                 Handler                      RoomHandler
//	more than WriteBufferMax bytes wait   Data isn't called and nothing is read until half of that waits
//	Write, WriteBuffer: more than         the call fails; Close with   the call fails; its caller decides;
//	WriteLimit bytes would wait           ErrWriteBufferFull           Room is called when none wait
//	Broadcast: the same                   Close with ErrWriteBufferFull
//	sending fails                         Close with the error
//	CloseAfterWrite, CloseWrite           later writes fail with net.ErrClosed
//	the peer takes nothing for long       Close with os.ErrDeadlineExceeded after IdleTimeout, if that is set
//
// The socket is tried before a write is refused. A write is taken whole or not at all; if none wait it
// may be of any length. Close drops the backlog; Detach and Attach hand it on.
//
// # Platforms
//
// Off Linux, and with the build tag percore_net, each connection has a goroutine that reads, and the
// rest is the same.
package reactor
