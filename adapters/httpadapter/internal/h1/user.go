package h1

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"github.com/percore/percore"
)

// netConn is a Conn as its users see it: crypto/tls, the hooks, and a handler that has hijacked it. Most
// methods are percore.Conn's.
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

func (n *netConn) Close() error { return (*Conn)(n).shut() }

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

func (n *netConn) Write(b []byte) (int, error) {
	if (*Conn)(n).TLS() != nil {
		return n.writeRecords(b)
	}
	return n.Conn.Write(b)
}

// writeRecords writes for crypto/tls. After a write that has failed, by a timeout say, it writes
// nothing: the client would take close_notify for the rest of the record, and report a bad MAC.
func (n *netConn) writeRecords(b []byte) (int, error) {
	if n.ext.cut == nil {
		written, err := n.ext.shaking.Load().Await(n.Conn.Write, b) // others compute meanwhile
		n.ext.cut = err
		return written, err
	}
	return 0, n.ext.cut
}

// SetReadDeadline sets the engine's deadline, and notes it as Conn.real.
func (n *netConn) SetReadDeadline(t time.Time) error {
	c := (*Conn)(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.state(); s != stateHijacked && s != stateClosed {
		c.real.set(instantOf(t))
	}
	return c.Conn.SetReadDeadline(t)
}

func (n *netConn) SetDeadline(t time.Time) error {
	if err := n.SetReadDeadline(t); err != nil {
		return err
	}
	return n.SetWriteDeadline(t)
}

// WriteTo is percore.Conn's, for the connection below a netConn: the kernel can move the bytes.
func (n *netConn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*netConn); ok && (*Conn)(to).TLS() == nil {
		w = to.Conn
	}
	return n.Conn.WriteTo(w)
}

// NetConn returns the percore.Conn.
func (n *netConn) NetConn() net.Conn { return n.Conn }

// AttachTo calls attach with the percore.Conn of a hijacked connection, of which nothing was read. If
// attach succeeds its callee owns the connection; if not nothing has changed. Package reactor's Attach
// looks for this method.
func (n *netConn) AttachTo(attach func(pc *percore.Conn, unread []byte) error) error {
	if c := (*Conn)(n); c.state() != stateHijacked || c.TLS() != nil {
		return errNotHijacked
	}
	return attach(n.Conn, nil)
}

// errNotHijacked is the error of what an event loop needs, on a connection that isn't hijacked: the
// adapter has armed the readiness callback.
var errNotHijacked = errors.New("httpadapter: the readiness callback is free once the connection is hijacked")

// OnReadable, NotifyReadable, CancelOnReadable and SetNoWait are percore.Conn's on a hijacked
// connection. Otherwise they fail.
func (n *netConn) OnReadable(f func(error)) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.OnReadable(f)
}

func (n *netConn) NotifyReadable(h percore.ReadableHandler) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.NotifyReadable(h)
}

func (n *netConn) CancelOnReadable() bool {
	if !n.isHijacked() {
		return false
	}
	return n.Conn.CancelOnReadable()
}

func (n *netConn) SetNoWait(noWait bool) error {
	if !n.isHijacked() {
		return errNotHijacked
	}
	return n.Conn.SetNoWait(noWait)
}

func (n *netConn) isHijacked() bool { return (*Conn)(n).state() == stateHijacked }
