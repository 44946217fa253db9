package h1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/percore/percore"
)

// netConn is a Conn as its users see it: crypto/tls, the hooks, and a handler that has hijacked it. It
// is one object from Accept to Close. Most methods are percore.Conn's.
type netConn Conn

// ConnOf returns the Conn of a connection that Identity has returned, or of the one below it if that is
// a *tls.Conn, or nil.
func ConnOf(nc net.Conn) *Conn {
	if t, ok := nc.(*tls.Conn); ok && t != nil {
		nc = t.NetConn()
	}
	c, _ := nc.(*netConn)
	return (*Conn)(c)
}

// Close closes the connection.
func (n *netConn) Close() error { return (*Conn)(n).shut() }

// Read reads for crypto/tls, or for the user.
func (n *netConn) Read(p []byte) (int, error) {
	c := (*Conn)(n)
	switch s := c.state(); {
	case s == stateNew && c.TLS() != nil:
		c.ext.begun.Store(true)
	case s == stateHandshake:
		return c.ext.shaking.Load().Await(c.Conn.Read, p)
	}
	return c.Conn.Read(p)
}

// Write writes for crypto/tls, or for the user.
func (n *netConn) Write(b []byte) (int, error) {
	if (*Conn)(n).TLS() != nil {
		return n.writeRecords(b)
	}
	return n.Conn.Write(b)
}

// writeRecords writes for crypto/tls. It writes nothing behind a write that has failed, a timeout say:
// the client would take crypto/tls' farewell for the rest of the record, and report a bad MAC.
func (n *netConn) writeRecords(b []byte) (int, error) {
	if n.ext.cut == nil {
		written, err := n.ext.shaking.Load().Await(n.Conn.Write, b) // others compute meanwhile
		n.ext.cut = err
		return written, err
	}
	return 0, n.ext.cut
}

// SetReadDeadline sets the deadline of the engine, and notes it: see timeouts.go.
func (n *netConn) SetReadDeadline(t time.Time) error {
	c := (*Conn)(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.state(); s != stateHijacked && s != stateClosed {
		c.real.set(instantOf(t))
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets the read and the write deadline.
func (n *netConn) SetDeadline(t time.Time) error {
	if err := n.SetReadDeadline(t); err != nil {
		return err
	}
	return n.SetWriteDeadline(t)
}

// WriteTo is percore.Conn's. It shows it the connection under a netConn, so that the kernel
// can move bytes from one to the other.
func (n *netConn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*netConn); ok && (*Conn)(to).TLS() == nil {
		w = to.Conn
	}
	return n.Conn.WriteTo(w)
}

// NetConn returns the percore.Conn.
func (n *netConn) NetConn() net.Conn { return n.Conn }

// AttachTo calls attach with the percore.Conn of a hijacked connection, of which nothing was read. If
// attach succeeds the connection is the callee's; if it fails it is as it was. It is for event loops,
// as in package reactor, whose Attach looks for it.
func (n *netConn) AttachTo(attach func(pc *percore.Conn, unread []byte) error) error {
	if c := (*Conn)(n); c.state() != stateHijacked || c.TLS() != nil {
		return errNotHijacked
	}
	return attach(n.Conn, nil)
}

// errNotHijacked is the error of the readiness callback, of SetNoWait, and of what else an event loop
// needs, of a connection that a worker uses: the adapter has armed a callback.
var errNotHijacked = errors.New("httpadapter: the readiness callback is free once the connection is hijacked")

// OnReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (n *netConn) OnReadable(f func(error)) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.OnReadable(f)
}

// NotifyReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (n *netConn) NotifyReadable(h percore.ReadableHandler) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.NotifyReadable(h)
}

// CancelOnReadable is percore.Conn's, on a hijacked connection.
func (n *netConn) CancelOnReadable() bool {
	if !n.isHijacked() {
		return false
	}
	return n.Conn.CancelOnReadable()
}

// SetNoWait is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (n *netConn) SetNoWait(noWait bool) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.SetNoWait(noWait)
}

func (n *netConn) isHijacked() bool { return (*Conn)(n).state() == stateHijacked }
