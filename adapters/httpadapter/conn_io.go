package httpadapter

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// This file has what crypto/tls calls, and the user: on a connection that a hook gets, and on one that
// was hijacked. Most methods are percore.Conn's.

// Read reads for crypto/tls, or for the user.
func (c *conn) Read(p []byte) (int, error) {
	switch s := c.state(); {
	case s == stateNew && c.isTLS():
		c.ext.begun.Store(true)
	case s == stateHandshake:
		return c.ext.shaking.Load().Await(c.Conn.Read, p)
	}
	return c.Conn.Read(p)
}

// Write writes for crypto/tls, or for the user.
func (c *conn) Write(b []byte) (int, error) {
	if c.isTLS() {
		return c.writeRecords(b)
	}
	return c.Conn.Write(b)
}

// writeRecords writes for crypto/tls. It writes nothing behind a write that has failed, a timeout say:
// the client would take crypto/tls' farewell for the rest of the record, and report a bad MAC.
func (c *conn) writeRecords(b []byte) (n int, err error) {
	if c.ext.cut == nil {
		n, err = c.ext.shaking.Load().Await(c.Conn.Write, b) // others compute meanwhile
		c.ext.cut = err
		return n, err
	}
	return 0, c.ext.cut
}

// SetReadDeadline sets the deadline of the engine, and notes it: see timeouts.go.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.state(); s != stateHijacked && s != stateClosed {
		c.real.set(instantOf(t))
	}
	return c.Conn.SetReadDeadline(t)
}

// SetDeadline sets the read and the write deadline.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// WriteTo is percore.Conn's. It shows it the connection under a conn, so that the kernel
// can move bytes from one to the other.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	if to, ok := w.(*conn); ok && !to.isTLS() {
		w = to.Conn
	}
	return c.Conn.WriteTo(w)
}

// NetConn returns the percore.Conn.
func (c *conn) NetConn() net.Conn { return c.Conn }

// hijacked is for a handler that hijacks the connection.
func (c *conn) hijacked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endLocked(connState.hijack) {
		seam.RestoreFinalizer(c.Conn)
		c.queue.counts.Add(countHijacked, 1)
		c.queue.server.Host.Left()
	}
}

// AttachTo calls attach with the percore.Conn of a hijacked connection, of which nothing was read. If
// attach succeeds the connection is the callee's; if it fails it is as it was. It is for event loops,
// as in package reactor, whose Attach looks for it.
func (c *conn) AttachTo(attach func(pc *percore.Conn, unread []byte) error) error {
	if c.state() != stateHijacked || c.isTLS() {
		return errNotHijacked
	}
	return attach(c.Conn, nil)
}

// errNotHijacked is the error of the readiness callback, of SetNoWait, and of what else an event loop
// needs, of a connection that a worker uses: the adapter has armed a callback.
var errNotHijacked = errors.New("httpadapter: the readiness callback is free once the connection is hijacked")

// OnReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) OnReadable(f func(error)) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.OnReadable(f)
}

// NotifyReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) NotifyReadable(h percore.ReadableHandler) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.NotifyReadable(h)
}

// CancelOnReadable is percore.Conn's, on a hijacked connection.
func (c *conn) CancelOnReadable() bool {
	if c.state() != stateHijacked {
		return false
	}
	return c.Conn.CancelOnReadable()
}

// SetNoWait is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) SetNoWait(noWait bool) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.SetNoWait(noWait)
}
