package h1

import (
	"crypto/tls"
	"errors"
	"net"
	"sync"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/serving"
)

// This file has HTTP/1 over TLS. Requests are read from the *tls.Conn, and answers written to it.
// Everything else is as without TLS, except two parts that are here: reading without waiting, and
// noticing while a handler runs that the client has gone.
//
// # Reading without waiting
//
// A worker must not wait in Read, and crypto/tls has no other: see serving.TryRead.
//
// # Waiting
//
// The engine calls back for bytes of the socket. Bytes that crypto/tls has taken from there wake
// nothing, so a connection may wait only if there are none: it must be dry (serving.TryRead).
//
// # The client's end
//
// During a handler a callback may be about a part of a record, a message to crypto/tls (a KeyUpdate),
// the client's farewell (close_notify), or the next request. Only reading tells them apart. A goroutine
// does that, for a moment, without waiting: see watch. As with net/http, which reads a byte at that
// time, a byte ends it: the next request is there, and the client's end is not looked for any more.
//
// crypto/tls promises little of this, so it is checked once per process: see tlsread.Probe.

// tlsStream is a Conn over TLS.
type tlsStream Conn

// tlsReader is the state of a tlsStream's reads.
type tlsReader struct {
	// owned by the worker
	state *tls.ConnectionState // Request.TLS of all requests, as with net/http; nil before the first

	mu sync.Mutex // held while a Read is made

	// guarded by mu
	dry    bool    // crypto/tls has nothing: the callback reports more. It is false before a Read
	failed bool    // nothing will come any more
	peeked bool    // a watch has read first
	first  [1]byte // the byte before all others that are read
}

// tryRead reads until the connection is dry, or p is full.
func (s *tlsStream) tryRead(p []byte) (n int, err error) {
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

// readLocked reads without waiting until the connection is dry, or p is full. The reader's mu is held.
func (s *tlsStream) readLocked(p []byte) (n int, err error) {
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

func (s *tlsStream) receive(p []byte) (n int, err error) {
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

// fill takes the memory before it waits: a *tls.Conn has no other way to wait than Read.
func (s *tlsStream) fill(b *requestBody) (int, error) { return s.receive(b.lend()) }
func (s *tlsStream) isBuffered() bool                 { return true }

// peekLocked reads a byte ahead, unless there is one. It returns an error if there will be none. The
// reader's mu is held.
func (s *tlsStream) peekLocked() error {
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

func (s *tlsStream) takePeeked() (b byte, ok bool) {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	ok = r.peeked
	r.peeked = false
	return r.first[0], ok
}

// mustRead reports whether crypto/tls may have bytes.
func (s *tlsStream) mustRead() bool {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dry || r.peeked
}

func (s *tlsStream) hasEnded() bool {
	r := &s.ext.reader
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.dry && !r.failed {
		_ = s.peekLocked() // a callback reports a timeout
	}
	return r.failed
}

// notice leaves the callback to a goroutine: reading from TLS may block the loop.
func (s *tlsStream) notice(x *watched, err error) (done bool) {
	if errors.Is(err, net.ErrClosed) {
		return x.notice(err)
	}
	go s.watch(x)
	return true
}

// watch finds out the meaning of a callback that has come while x's handler runs. It is as if the
// callback came when watch returns, or never, if it meant nothing.
func (s *tlsStream) watch(x *watched) {
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

// armAgain arms the callback, which has come, if x still watches for the client's end, and reports
// whether it is armed.
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

func (s *tlsStream) write(p []byte) (int, error) { return s.ext.tls.Write(p) }
func (s *tlsStream) closeWrite()                 { _ = s.ext.tls.CloseWrite() }

// close ends the TLS session with a farewell, which may block for a while.
func (s *tlsStream) close() {
	_ = s.ext.tls.Close()
	_ = s.Conn.Close()
}

func (s *tlsStream) tlsState() *tls.ConnectionState {
	r := &s.ext.reader
	if r.state == nil {
		r.state = new(tls.ConnectionState)
		*r.state = s.ext.tls.ConnectionState()
	}
	return r.state
}

func (s *tlsStream) answerOut(x *exchange) http1.Conn { return answerOut{x} }
