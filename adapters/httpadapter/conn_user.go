package httpadapter

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
)

// This file has the ways to read from a connection, and to wait for it, other than Read.
//
// The fast path may read more of a stream than it can use, and declines: net/http takes as many of the
// bytes as its buffer has room for. If the handler hijacks the connection, the rest is held here, and
// the next byte of the socket comes after it. So all ways to read begin with the bytes that are held,
// all ways to wait find something, and those that reach past this package, to the descriptor, fail until
// the bytes are read. A test has a table of all methods.
//
// Only a hijacked connection is read in these ways. Before that net/http reads it, or a worker.
// Over TLS the bytes lie above it, and a *tlsConn has no way to read but Read.

// heldBack returns where the bytes of a hijacked connection are that this package holds, or nil. It
// stays there until the connection is closed.
func (c *conn) heldBack() *unread {
	if c.state() != stateHijacked || c.isTLS() {
		return nil
	}
	return c.unread
}

// holdsBack reports whether there are such bytes.
func (c *conn) holdsBack() bool { return c.heldBack().hasBytes() }

// WriteTo is percore.Conn's. It shows it the connection under a conn, so that the kernel
// can move bytes from one to the other.
func (c *conn) WriteTo(w io.Writer) (int64, error) {
	c.mustLast()
	if to, ok := w.(*conn); ok && !to.isTLS() {
		to.mustLast()
		w = to.Conn
	}
	var err error
	n := c.heldBack().use(func(p []byte) (n int) {
		if n, err = w.Write(p); n < len(p) && err == nil {
			err = io.ErrShortWrite
		}
		return n
	})
	if err != nil {
		return int64(n), err
	}
	m, err := c.Conn.WriteTo(w)
	return int64(n) + m, err
}

func (c *conn) ReadReady(lend func() []byte, takeBack func()) (int, error) {
	c.mustLast()
	lent := false
	n := c.heldBack().use(func(p []byte) int {
		lent = true
		return copy(lend(), p)
	})
	switch {
	case !lent:
		return c.Conn.ReadReady(lend, takeBack)
	case n == 0:
		takeBack()
	}
	return n, nil
}

func (c *conn) TryRead(b []byte) (int, error) {
	c.mustLast()
	u := c.heldBack()
	if u == nil {
		return c.Conn.TryRead(b)
	}
	n := u.read(b)
	if n == len(b) {
		return n, nil
	}
	m, err := c.Conn.TryRead(b[n:])
	if n > 0 {
		err = nil // it comes again
	}
	return n + m, err
}

// errHeldBack is the error of what goes past the bytes that are held.
var errHeldBack = errors.New("httpadapter: bytes behind the request were read from the socket already: " +

	"Read them from the connection first")

func (c *conn) heldBackError(op string) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: errHeldBack}
}

func (c *conn) File() (*os.File, error) {
	c.mustLast()
	if c.holdsBack() {
		return nil, c.heldBackError("file")
	}
	return c.Conn.File()
}

func (c *conn) SyscallConn() (syscall.RawConn, error) {
	c.mustLast()
	raw, err := c.Conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	return heldRawConn{raw, c}, nil
}

// heldRawConn is the result of SyscallConn.
type heldRawConn struct {
	syscall.RawConn
	conn *conn
}

// Read fails as long as bytes are held: those of the descriptor come after them.
func (r heldRawConn) Read(f func(fd uintptr) (done bool)) error {
	if r.conn.holdsBack() {
		return r.conn.heldBackError("raw-read")
	}
	return r.RawConn.Read(f)
}

// NetConn returns the percore.Conn. Closing it closes the connection; reading from it and setting its
// read deadline get in net/http's way. While bytes of a hijacked connection are held it returns the
// conn in its place, for its methods except this one.
func (c *conn) NetConn() net.Conn {
	if c.holdsBack() {
		return heldConn{conn: c}
	}
	return c.Conn
}

// heldConn is a conn without NetConn: code that unwraps connections as far as it can ends there.
type heldConn struct {
	*conn
	//lint:ignore U1000 it hides conn's NetConn
	withoutNetConn
}

// withoutNetConn has a method of the same name at the same depth, so that neither is promoted.
//
//lint:ignore U1000 it hides conn's NetConn
type withoutNetConn struct{}

//lint:ignore U1000 it hides conn's NetConn
func (withoutNetConn) NetConn() net.Conn { panic("httpadapter: not reachable") }

// AttachTo calls attach with the percore.Conn of a hijacked connection and the bytes that are held,
// which come first. If attach succeeds the connection is the callee's; if it fails it is as it was. It
// is for event loops, as in package reactor, whose Attach looks for it.
func (c *conn) AttachTo(attach func(pc *percore.Conn, unread []byte) error) (err error) {
	switch u := c.heldBack(); {
	case c.state() != stateHijacked || c.isTLS():
		return errNotHijacked
	case u == nil:
		return attach(c.Conn, nil)
	case u.isReady():
		return c.armedError()
	default:
		held := false
		u.use(func(p []byte) (n int) {
			held = true
			if err = attach(c.Conn, p); err == nil {
				n = len(p)
			}
			return n
		})
		if !held {
			err = attach(c.Conn, nil)
		}
		return err
	}
}

// errNotHijacked is the error of the readiness callback, of SetNoWait, and of what else an event loop
// needs, of a connection that net/http uses: the adapter has armed a callback, and net/http's reads must
// wait.
var errNotHijacked = errors.New("httpadapter: the readiness callback is free once the connection is hijacked")

// OnReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) OnReadable(f func(error)) error {
	if c.holdsBack() {
		return c.NotifyReadable(readableFunc(f))
	}
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	return c.Conn.OnReadable(f)
}

// readableFunc is a function as a handler.
type readableFunc func(error)

func (f readableFunc) OnReadable(err error) { f(err) }

// NotifyReadable is percore.Conn's, on a hijacked connection. Otherwise it fails.
func (c *conn) NotifyReadable(h percore.ReadableHandler) error {
	if c.state() != stateHijacked {
		return errNotHijacked
	}
	if l := c.Conn.Loop(); l != nil && c.holdsBack() {
		if !c.unread.arm(h) {
			return c.armedError()
		}
		l.Submit(c.callReady)
		return nil
	}
	return c.Conn.NotifyReadable(h)
}

// armedError is the error of a callback that is armed already.
func (c *conn) armedError() error {
	return &net.OpError{Op: "set", Net: c.LocalAddr().Network(), Addr: c.LocalAddr(), Err: loop.ErrArmed}
}

// callReady calls the callback that was noted, on the loop. The bytes may be read, or the connection be
// closed, by now: the callback's next read finds out. (After a cancellation it may be the callback that
// was armed after it: that is called early, and the task of its own finds none.)
func (c *conn) callReady() {
	if h := c.unread.disarm(); h != nil {
		h.OnReadable(nil)
	}
}

// CancelOnReadable is percore.Conn's, on a hijacked connection.
func (c *conn) CancelOnReadable() bool {
	if c.state() != stateHijacked {
		return false
	}
	if u := c.heldBack(); u != nil && u.disarm() != nil {
		return true
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
