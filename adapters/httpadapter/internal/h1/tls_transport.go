package h1

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/serving"
)

// This file has HTTP/1 over TLS. Requests are read from the *tls.Conn, and answers written to it. Three
// things differ from a connection without TLS:
//
//   - A worker must not wait, and crypto/tls has only a Read that does: see serving.TryRead.
//   - The engine calls back for bytes in the socket, but not for those that crypto/tls has taken from
//     there. So a connection may wait only if it is dry: crypto/tls has none.
//   - A callback during a handler may be about a part of a record, a message to crypto/tls (KeyUpdate),
//     the client's end (close_notify), or the next request. Only reading tells them apart. A goroutine
//     does that, without waiting: see watch. As with net/http, which reads a byte then, a byte means that
//     the next request is there, and ends the watch.
//
// crypto/tls promises little of this, so tlsread.Probe tests it once per process.

// tlsTransport is a Conn over TLS.
type tlsTransport Conn

// tlsReader is the state of a tlsTransport's reads.
type tlsReader struct {
	// owned by the worker
	state *tls.ConnectionState // Request.TLS of all requests, as with net/http; nil before the first

	mu sync.Mutex // held while a Read is made

	// guarded by mu
	dry    bool    // crypto/tls has nothing, so the callback reports more; false before the first Read
	failed bool    // nothing will come any more
	peeked bool    // a watch has read first
	first  [1]byte // comes before all other bytes
}

func (s *tlsTransport) tryRead(p []byte) (n int, err error) {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	n = r.takeLocked(p)
	m, err := s.readLocked(p[n:])
	if n += m; n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// readLocked reads without waiting, until the connection is dry, or p is full.
func (s *tlsTransport) readLocked(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	r := &s.ext.reader
	n, r.dry, err = serving.TryRead(s.Conn, s.ext.tls, p)
	if err != nil && !isTimeout(err) {
		r.failed = true
	}
	return n, err
}

func (s *tlsTransport) receive(p []byte) (n int, err error) {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.takeLocked(p); n > 0 {
		return n, nil
	}
	r.dry = false
	n, err = s.ext.tls.Read(p)
	if err != nil && !isTimeout(err) {
		r.failed = true
	}
	if n > 0 {
		err = nil // it comes again
	}
	return n, err
}

// fill takes the memory before it waits: a *tls.Conn can only wait in Read.
func (s *tlsTransport) fill(b *requestBody) (int, error) { return s.receive(b.lend()) }
func (s *tlsTransport) isBuffered() bool                 { return true }

// peekLocked reads a byte ahead, unless it has one. It returns an error if none will come.
func (s *tlsTransport) peekLocked() error {
	r := &s.ext.reader
	if r.peeked {
		return nil
	}
	n, err := s.readLocked(r.first[:])
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

func (s *tlsTransport) takePeeked() (b byte, ok bool) {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	ok = r.peeked
	r.peeked = false
	return r.first[0], ok
}

func (s *tlsTransport) mustRead() bool {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dry || r.peeked
}

func (s *tlsTransport) hasEnded() bool {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dry && !r.failed {
		_ = s.peekLocked() // a callback reports a timeout
	}
	return r.failed
}

// notice leaves the callback to a goroutine: reading from TLS may block the loop.
func (s *tlsTransport) notice(x *watched, err error) (done bool) {
	if errors.Is(err, net.ErrClosed) {
		return x.notice(err)
	}
	go s.watch(x)
	return true
}

// watch finds out what a callback means that has come while x's handler runs. Unless that is nothing, it
// is as if the callback came when watch returns.
func (s *tlsTransport) watch(x *watched) {
	r := &s.ext.reader
	r.mu.Lock()
	var err error
	watching := x.isWatching()
	if watching {
		err = s.peekLocked()
	}
	more := r.peeked
	r.mu.Unlock()
	switch {
	case err != nil:
		x.clientGone()
	case watching && !more && x.armAgain():
		return
	}
	(*waker)(s).after(x, nil)
}

// armAgain arms the callback, which has come, if x still watches, and reports whether it is armed.
func (x *watched) armAgain() bool {
	x.mu.Lock()
	if !x.isWatchingLocked() {
		x.mu.Unlock()
		return false
	}
	err := x.conn.armCallback()
	x.mu.Unlock()
	if err == nil {
		return true
	}
	x.clientGone() // closed, or a deadline of the handler has passed
	return false
}

func (s *tlsTransport) write(p []byte) (int, error) { return s.ext.tls.Write(p) }
func (s *tlsTransport) closeWrite()                 { _ = s.ext.tls.CloseWrite() }

// close sends close_notify first, which may block for a while.
func (s *tlsTransport) close() {
	_ = s.ext.tls.Close()
	_ = s.Conn.Close()
}

func (s *tlsTransport) tlsState() *tls.ConnectionState {
	r := &s.ext.reader
	if r.state == nil {
		r.state = new(tls.ConnectionState)
		*r.state = s.ext.tls.ConnectionState()
	}
	return r.state
}

func (s *tlsTransport) answerOut(x *exchange) http1.Conn { return answerOut{x} }
