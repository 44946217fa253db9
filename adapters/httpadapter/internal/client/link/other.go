package link

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
)

// otherConn is a connection of any type, which a function of the user's has dialed. A goroutine reads
// from it while a Read or a handler waits. So a Read obeys the deadline and a close even if the
// connection doesn't, and an idle connection is watched. The next Read gets the bytes that come for a
// handler, or for a Read that was given up.
//
//	reading  ahead, err  handler  meaning
//	false    none        nil      nothing waits
//	true     none        nil      a Read waits, or has been given up
//	true     none        set      the handler waits
//	false    some        nil      the next Read, or the next handler, gets that
//
// If direct is set, a Read without a deadline reads by itself, unless the goroutine does.
type otherConn struct {
	net.Conn
	direct bool                 // immutable: a close ends a Read, and no deadline is set during one
	tls    *tls.ConnectionState // immutable once it was dialed; nil: none is known

	mu       sync.Mutex
	changed  sync.Cond
	reading  bool
	buf      []byte // what the goroutine reads into; never another's: the connection may have kept it
	ahead    []byte // read, and not taken
	err      error  // after ahead, permanently
	handler  percore.ReadableHandler
	deadline time.Time   // of reads
	timer    *time.Timer // of the deadline; nil: there was none yet
}

// otherBytes is how much is read at a time, as in net/http.
const otherBytes = 4 << 10

func newOther(nc net.Conn, timed bool) *otherConn {
	w := &otherConn{Conn: nc}
	if over, ok := nc.(*tls.Conn); ok {
		nc = over.NetConn()
	}
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn, *percore.Conn:
		w.direct = !timed
	}
	w.changed.L = &w.mu
	return w
}

// tlsConn and shaker are a *tls.Conn.
type (
	tlsConn interface{ ConnectionState() tls.ConnectionState }
	shaker  interface {
		HandshakeContext(ctx context.Context) error
	}
)

// TellsTLS reports whether the user's function has made TLS that can be asked for its state.
func (c *Conn) TellsTLS() bool {
	w, _ := c.below.(*otherConn)
	if w == nil {
		return false
	}
	_, tells := w.Conn.(tlsConn)
	_, isGos := w.Conn.(*tls.Conn)
	return isGos || tells && knowsOtherTLS
}

// TakeTLS completes the handshake of a connection for which TellsTLS is true, if it has a method for
// that. If it fails, the caller closes the connection.
func (c *Conn) TakeTLS(ctx context.Context) error {
	w := c.below.(*otherConn)
	if over, ok := w.Conn.(shaker); ok {
		if err := over.HandshakeContext(ctx); err != nil {
			return err
		}
	}
	state := w.Conn.(tlsConn).ConnectionState()
	w.tls = &state
	return nil
}

// startLocked starts the goroutine that reads, unless it runs.
func (w *otherConn) startLocked() {
	if w.reading {
		return
	}
	if w.buf == nil {
		w.buf = make([]byte, otherBytes)
	}
	w.reading = true
	go w.read()
}

// read reads once, on a goroutine of its own.
func (w *otherConn) read() {
	n, err := 0, errReadEnded
	defer func() {
		w.mu.Lock()
		w.reading = false
		if w.err == nil { // else it was closed
			w.ahead, w.err = w.buf[:min(max(n, 0), len(w.buf))], err
		}
		h := w.takeHandlerLocked()
		if len(w.ahead) > 0 {
			err = nil
		}
		w.changed.Broadcast()
		w.mu.Unlock()
		if h != nil {
			h.OnReadable(err)
		}
	}()
	for range readsMax {
		if n, err = w.Conn.Read(w.buf); n > 0 || err != nil {
			return
		}
	}
	err = io.ErrNoProgress
}

// readsMax is how often a Read may return nothing, as in package bufio.
const readsMax = 100

// errReadEnded says that a Read of the user's has ended its goroutine.
var errReadEnded = errors.New("net/http: a connection's Read has ended the goroutine")

// Read implements net.Conn.
func (w *otherConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		if n, err := w.takeLocked(p); n > 0 || err != nil {
			return n, err
		}
		if !w.deadline.IsZero() && !time.Now().Before(w.deadline) {
			return 0, os.ErrDeadlineExceeded
		}
		if w.direct && !w.reading && w.deadline.IsZero() {
			w.mu.Unlock()
			n, err := w.Conn.Read(p)
			w.mu.Lock()
			if n == 0 && w.err == nil {
				w.err = err
			}
			return n, err
		}
		w.startLocked()
		w.changed.Wait()
	}
}

// takeLocked takes what has come.
func (w *otherConn) takeLocked(p []byte) (n int, err error) {
	if len(w.ahead) > 0 {
		n = copy(p, w.ahead)
		w.ahead = w.ahead[n:]
		return n, nil
	}
	return 0, w.err
}

// TryRead implements link.
func (w *otherConn) TryRead(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeLocked(p)
}

func (w *otherConn) hasUnread() bool {
	w.mu.Lock()
	has := len(w.ahead) > 0 || w.err != nil
	w.mu.Unlock()
	return has || seam.HasUnread(w.Conn)
}

// NotifyReadable implements link.
func (w *otherConn) NotifyReadable(h percore.ReadableHandler) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case len(w.ahead) > 0:
		go h.OnReadable(nil)
	case w.err != nil:
		return w.err
	default:
		w.handler = h
		w.startLocked()
	}
	return nil
}

// CancelOnReadable implements link.
func (w *otherConn) CancelOnReadable() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.takeHandlerLocked() != nil
}

// takeHandlerLocked removes and returns the handler that waits, or nil.
func (w *otherConn) takeHandlerLocked() percore.ReadableHandler {
	h := w.handler
	w.handler = nil
	return h
}

// SetDeadline implements net.Conn.
func (w *otherConn) SetDeadline(t time.Time) error {
	_ = w.SetReadDeadline(t)
	return w.SetWriteDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (w *otherConn) SetReadDeadline(t time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = t
	if w.timer != nil {
		w.timer.Stop()
	}
	switch wait := time.Until(t); {
	case t.IsZero():
	case wait <= 0:
		go w.expire()
	case w.timer == nil:
		w.timer = time.AfterFunc(wait, w.expire)
	default:
		w.timer.Reset(wait)
	}
	return nil
}

// expire ends what waits if the deadline has passed.
func (w *otherConn) expire() {
	w.mu.Lock()
	var h percore.ReadableHandler
	if !w.deadline.IsZero() && !time.Now().Before(w.deadline) {
		h = w.takeHandlerLocked()
		w.changed.Broadcast()
	}
	w.mu.Unlock()
	if h != nil {
		h.OnReadable(os.ErrDeadlineExceeded)
	}
}

// Close implements net.Conn. A waiting Read ends, even if the connection's own Read doesn't.
func (w *otherConn) Close() error {
	err := w.Conn.Close()
	w.mu.Lock()
	if w.err == nil {
		w.err = net.ErrClosed
	}
	w.ahead = nil
	h := w.takeHandlerLocked()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.changed.Broadcast()
	w.mu.Unlock()
	if h != nil {
		h.OnReadable(net.ErrClosed)
	}
	return err
}

// CloseWrite ends the stream, if the connection can.
func (w *otherConn) CloseWrite() error {
	if c, ok := w.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// ReadFrom implements io.ReaderFrom.
func (w *otherConn) ReadFrom(r io.Reader) (int64, error) { return io.Copy(w.Conn, r) }

// WriteBuffers implements link, but leaves v as it is.
func (w *otherConn) WriteBuffers(v *net.Buffers) (int64, error) {
	n, err := w.Conn.Write(slices.Concat(*v...)) // in one Write, as net/http's buffer does it
	return int64(n), err
}
