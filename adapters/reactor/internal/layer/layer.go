// Package layer connects package reactor with packages that work between a socket and a handler: TLS.
package layer

import (
	"context"
	"net"
	"time"
)

// Socket is a connection of package reactor below a layer. Its methods don't block.
type Socket interface {
	// TryRead returns 0 and nil if there is nothing to read. Then the loop is told when there is.
	TryRead(p []byte) (int, error)

	// Send sends p after all that was sent before, or keeps it in the connection's backlog. It fails
	// once the connection is closed, or has another owner.
	Send(p []byte) error
}

// Layer is a layer of one connection. Only the loop calls Read; other methods may be called at any time.
type Layer interface {
	// Read reads what is there until p is full, or some 64 records were read. It returns 0 and nil
	// if there is nothing to read, with Socket.TryRead's promise.
	Read(p []byte) (int, error)

	// IsPartial reports whether Read has a part of a record, whose rest is to come.
	IsPartial() bool

	// Write sends p.
	Write(p []byte) error

	// CloseWrite sends the end of the stream.
	CloseWrite()

	// Enter gives the connection to package reactor: from now on the layer reads and writes s.
	// Leave gives it back to blocking code: the layer reads unread, and then from conn, and writes to
	// conn. The result is the connection above it. No other method runs meanwhile, or comes after Leave.
	Enter(s Socket)
	Leave(conn net.Conn, unread []byte) net.Conn
}

// Lower is the connection below a layer that isn't in package reactor's hands. The connection above,
// a *tls.Conn, returns it as its NetConn.
type Lower interface {
	// Conn returns the connection below, which package reactor knows.
	Conn() net.Conn

	// Layer returns the layer. upper is the connection above. It fails if that isn't one that
	// the layer can serve, as a *tls.Conn before its handshake.
	Layer(upper net.Conn) (Layer, error)
}

// Upper is a connection above a layer: a *tls.Conn.
type Upper interface {
	net.Conn
	NetConn() net.Conn
	HandshakeContext(ctx context.Context) error
}

// Permit is a handshake's permit to compute: only some compute at a time. More would not be done sooner,
// and the loops would wait behind all of them for a processor.
type Permit interface {
	// Wait gives it back before the handshake waits for its peer. Resume waits for the next.
	Wait()
	Resume()
}

// Handshakes says how accepted connections get their layer.
type Handshakes struct {
	// Wrap returns a connection above conn. During the handshake it gives up its permit while it reads
	// and writes conn.
	Wrap func(conn net.Conn, permit Permit) Upper

	Probe   func() error // returns why the loops can't read from a layer in this process, or nil
	Timeout time.Duration
	Max     int // under way at a time
}

// The functions of package reactor for the packages beside it.
var (
	// TLS returns a *reactor.TLS.
	TLS func(Handshakes) any

	// Of returns the layer of a *reactor.Conn, or nil if there is none.
	Of func(conn any) Layer
)
