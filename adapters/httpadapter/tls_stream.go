package httpadapter

import (
	"crypto/tls"
	"errors"
	"sync"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
)

// The fast path over TLS. Requests are read from the *tls.Conn, and answers written to it; all the
// rest is as without TLS, except the two parts that are here: reading without waiting, and noticing
// during a handler that the client has left.
//
// # Reading without waiting
//
// A worker must not wait in Read, and crypto/tls has no other. But when the connection below fails with
// a net.Error that is Temporary, as a timeout is, a *tls.Conn returns that error, keeps the part of a
// record that it has, and goes on with the next Read. So as long as a worker reads, the connection below
// fails with percore.ErrWouldWait in the place of waiting.
//
// # Waiting
//
// The engine calls back for bytes of the socket. Bytes that crypto/tls has taken from there wake
// nothing, so a connection may wait only if there are none: it must be dry. That is so if the last Read
// has ended with that error. Then crypto/tls has looked for more because all that it had was used up,
// except the beginning of a record or of a message to crypto/tls itself, and has found none.
//
// # The client's end
//
// During a handler a callback may be about a part of a record, a message to crypto/tls (a KeyUpdate),
// the client's farewell (close_notify), or the next request. Only reading tells. A goroutine does that,
// for the moment, without waiting: see watch. As with net/http, which reads a byte meanwhile, a byte
// ends it: the next request is there, and the client's end is not looked for any more.
//
// crypto/tls promises little of this, so it is checked once per process: see probe.TLS.

// tlsReader reads from the TLS of a connection that a worker has.
type tlsReader struct {
	// owned by the worker
	state *tls.ConnectionState // Request.TLS of all requests, as with net/http; nil before the first

	mu sync.Mutex // held while a Read is made

	// guarded by mu
	dry    bool    // crypto/tls has nothing: the callback tells of more. It is false before a Read
	failed bool    // nothing will come any more
	peeked bool    // a watch has read first
	first  [1]byte // the byte before all others that are read
}

// tryRead reads for a worker. It doesn't wait: it returns 0 and nil if there is nothing to read. Over
// TLS it reads until the connection is dry, or p is full.
func (c *conn) tryRead(p []byte) (n int, err error) {
	if !c.isTLS() {
		return c.Conn.TryRead(p)
	}
	r := &c.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.takeLocked(p)
	for n < len(p) {
		var m int
		m, err = r.readLocked(c, p[n:])
		n += m
		if r.dry || err != nil {
			break
		}
	}
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// readLocked is a Read that doesn't wait.
func (r *tlsReader) readLocked(c *conn, p []byte) (n int, err error) {
	_ = c.Conn.SetNoWait(true) // closed if it fails
	n, err = c.ext.tls.Read(p)
	_ = c.Conn.SetNoWait(false)
	if r.dry = err == percore.ErrWouldWait; r.dry {
		err = nil
	}
	if err != nil && !isTimeout(err) {
		r.failed = true
	}
	return n, err
}

// receive reads bytes of a body, for which it waits.
func (c *conn) receive(p []byte) (n int, err error) {
	if !c.isTLS() {
		return c.Conn.Read(p)
	}
	r := &c.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.takeLocked(p); n > 0 {
		return n, nil
	}
	r.dry = false
	n, err = c.ext.tls.Read(p)
	if err != nil && !isTimeout(err) {
		r.failed = true
	}
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// peekLocked reads a byte ahead, unless there is one. It returns an error if there will be none.
func (r *tlsReader) peekLocked(c *conn) error {
	if r.peeked {
		return nil
	}
	n, err := r.readLocked(c, r.first[:])
	if n > 0 {
		r.peeked, err = true, nil
	}
	return err
}

// takeLocked moves the byte that was read ahead to p.
func (r *tlsReader) takeLocked(p []byte) (n int) {
	if !r.peeked || len(p) == 0 {
		return 0
	}
	r.peeked = false
	return copy(p, r.first[:])
}

// takePeeked moves the byte that was read ahead to p, for others than a worker to have it. No watch
// reads any more: the request is over, or its handler has hijacked the connection.
func (c *conn) takePeeked(p []byte) (n int) {
	if !c.isTLS() {
		return 0
	}
	r := &c.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.takeLocked(p)
}

// buffered reports whether the connection must not wait, because crypto/tls may have bytes of which no
// callback tells.
func (c *conn) buffered() bool {
	if !c.isTLS() {
		return false
	}
	r := &c.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dry || r.peeked
}

// ended reports whether the client is known to have left before its request is served, of which no
// callback tells any more.
func (c *conn) ended() bool {
	if !c.isTLS() {
		return false
	}
	r := &c.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dry && !r.failed {
		_ = r.peekLocked(c) // a timeout is a callback's to tell
	}
	return r.failed
}

// watch finds out the meaning of a callback that has come while x's handler runs. It is as if the
// callback came when watch returns; and not at all if it meant nothing.
func (x *exchange) watch() {
	c := x.conn
	r := &c.ext.reader
	r.mu.Lock()
	var err error
	watching := x.isWatching()
	if watching {
		err = r.peekLocked(c)
	}
	more := r.peeked
	r.mu.Unlock()
	switch {
	case err != nil:
		x.clientGone()
	case watching && !more && x.armAgain():
		return
	}
	c.wakeAfter(x, nil)
}

// armAgain arms the callback, which has come, if the client's end is still of interest to x, and
// reports whether it is armed.
func (x *exchange) armAgain() bool {
	x.mu.Lock()
	if !x.isWatchingLocked() {
		x.mu.Unlock()
		return false
	}
	err := x.conn.Conn.NotifyReadable((*waker)(x.conn))
	x.mu.Unlock()
	if err == nil || errors.Is(err, loop.ErrArmed) {
		return true
	}
	x.clientGone() // closed, or a deadline of the handler's has passed
	return false
}

// write writes to the client.
func (c *conn) write(p []byte) (int, error) {
	if c.isTLS() {
		return c.ext.tls.Write(p)
	}
	return c.Conn.Write(p)
}

// closeWrite ends the stream to the client.
func (c *conn) closeWrite() {
	if c.isTLS() {
		_ = c.ext.tls.CloseWrite()
		return
	}
	_ = c.Conn.CloseWrite()
}

// closeStream closes the connection that a worker has, over TLS with a farewell, which may block for a
// while.
func (c *conn) closeStream() {
	if c.isTLS() {
		_ = c.ext.tls.Close()
	}
	_ = c.Conn.Close()
}

// tlsState returns Request.TLS.
func (c *conn) tlsState() *tls.ConnectionState {
	if !c.isTLS() {
		return nil
	}
	r := &c.ext.reader
	if r.state == nil {
		r.state = new(tls.ConnectionState)
		*r.state = c.ext.tls.ConnectionState()
	}
	return r.state
}

// tlsWire is an exchange over TLS as the connection of its http1.Response: a wire without ReadFrom,
// since files must be encrypted. (In an interface a struct of one pointer is that pointer.)
type tlsWire struct{ of *wire }

func (w tlsWire) Write(p []byte) (int, error)          { return w.of.Write(p) }
func (w tlsWire) Fail()                                { w.of.Fail() }
func (w tlsWire) KeepAlives() bool                     { return w.of.KeepAlives() }
func (w tlsWire) FinishBody() (reusable, tooLong bool) { return w.of.FinishBody() }
func (w tlsWire) AppendDate(b []byte) []byte           { return w.of.AppendDate(b) }
func (w tlsWire) Logf(format string, args ...any)      { w.of.Logf(format, args...) }
