// Package owned is the part of package percore by which an adapter says that it holds a
// connection, so that the connection needs no finalizer, and that no user needs.
package owned

import "net"

// The functions that package percore sets, where its engine runs; nil otherwise.
var (
	// Hold says that the caller refers to c, a *percore.Conn, until it closes c or calls Release. The
	// garbage collector doesn't close c meanwhile. The finalizer by which it does takes 56 bytes of
	// the runtime's, more than the Conn.
	Hold func(c net.Conn)

	// Release ends Hold, before c is another owner's.
	Release func(c net.Conn)
)
