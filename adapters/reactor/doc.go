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
// # Platforms
//
// Off Linux, and with the build tag percore_net, each connection has a goroutine that reads, and the
// rest is the same.
package reactor
