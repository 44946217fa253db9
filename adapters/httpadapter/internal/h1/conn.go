package h1

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// Conn is a connection that was accepted. Its users have the same object as a netConn, or over TLS a
// *tls.Conn above that: see Identity.
//
// state.go has the states and all changes of them. Most methods belong to a type by which one of its
// owners knows it:
//
//	who has it                      as            in
//	the accept loop                 Conn          accept.go: Queue.Accept, start
//	the loop, by its callback       waker         wake.go: OnReadable
//	a goroutine of its own          handshaker    tls_handshake.go: begin
//	a worker                        turn          turn.go: serve; exchange.go has a request and its answer,
//	                                              odd.go the requests that are not plain
//	                                plainTransport   transport.go: reads and writes
//	                                tlsTransport     tls_transport.go: the same over TLS
//	the listener's Accept           idleConn      room.go: CloseIdle
//	a HandOver                      Moving        mover.go: PutBack, CloseMoved
//	crypto/tls, and the user        netConn       user.go: Read, Write, SetReadDeadline, OnReadable
//	the host                        Conn          switch.go: Leave, for another protocol
//	any of them                     Conn          conn.go: the state, shut, closeIf
type Conn struct {
	*percore.Conn // immutable

	// immutable
	queue *Queue
	ext   *connExt // nil on a plain connection without ConnContext

	// atomic; changed with mu held, except that the worker and the callback change serving and notified
	// without it: each request would have to take it
	packed atomic.Uint32 // a connState

	// guarded by queue.mu
	index int32 // in queue.mu.kept; -1: not there

	// owned by the worker that has the connection, and by the loop when it waits
	kept *kept // nil: no bytes

	// atomic
	current atomic.Pointer[watched] // of the request that a worker serves, or of an answer that waits

	mu sync.Mutex

	// atomic; written with mu held
	real atomicInstant // the read deadline that a timeout or the user has set
}

// connExt holds the parts that only some connections need.
type connExt struct {
	ctx    context.Context // the result of the user's ConnContext
	tls    *tls.Conn       // the connection as the user sees it
	shaken bool            // the handshake is over; guarded by Conn.mu
	limit  bool            // the handshake has a deadline; guarded by Conn.mu
	begun  atomic.Bool     // one of the user's hooks has begun the handshake
	failed atomic.Bool     // the handshake has failed, which was logged
	reader tlsReader       // for the worker
	cut    error           // of a write that failed; guarded by crypto/tls, which writes one record at a time

	shaking atomic.Pointer[serving.Handshake] // that is under way; nil: none
}

func (c *Conn) load() connState { return connState(c.packed.Load()) }
func (c *Conn) state() state    { return c.load().state() }
func (c *Conn) server() *Server { return c.queue.server }

// Host returns the host of the server.
func (c *Conn) Host() Host { return c.server().Host }

// change applies event to the state, and retries if another goroutine has changed the state in between.
// It returns the new state, and false if event doesn't apply.
func (c *Conn) change(event func(connState) (connState, bool)) (connState, bool) {
	for {
		from := c.load()
		to, ok := event(from)
		switch {
		case !ok:
			return from, false
		case to == from:
			return to, true
		case !c.packed.CompareAndSwap(uint32(from), uint32(to)):
			continue
		}
		if (from^to)&stateMask != 0 {
			c.queue.gauge(from, -1)
			c.queue.gauge(to, +1)
		}
		return to, true
	}
}

// Context returns the parent of the contexts of the connection's requests.
func (c *Conn) Context() context.Context {
	if c.ext != nil && c.ext.ctx != nil {
		return c.ext.ctx
	}
	return c.server().Context
}

// TLS returns the connection as its user sees it, or nil if it is in cleartext.
func (c *Conn) TLS() *tls.Conn {
	if c.ext == nil {
		return nil
	}
	return c.ext.tls
}

// Identity is the connection that the user's hooks get: the one that package net and crypto/tls
// would have made.
func (c *Conn) Identity() net.Conn {
	if c.TLS() != nil {
		return c.ext.tls
	}
	return (*netConn)(c)
}

// HasServed reports whether the connection has ever answered a request.
func (c *Conn) HasServed() bool { return c.load().has(began) }

// RemoteText returns the peer's address in net/http's form.
func (c *Conn) RemoteText() string {
	if at := c.Conn.RemoteAddrPort(); at != (netip.AddrPort{}) {
		return c.server().addrTexts.of(at, uint64(c.queue.counts.Load(CountRequests)))
	}
	return c.RemoteAddr().String()
}

// endLocked applies event, and reports whether that has hijacked or finally closed the connection. If
// so, the queue has dropped it, and the caller, which holds mu, must call the host's Left as soon as the
// connection is closed: Shutdown waits for that.
func (c *Conn) endLocked(event func(connState) (connState, bool)) (ended bool) {
	to, ok := c.change(event)
	if !ok || to.state() != stateClosed && to.state() != stateHijacked {
		return false
	}
	c.queue.forget(c)
	return true
}

// end is endLocked without mu held.
func (c *Conn) end(event func(connState) (connState, bool)) (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endLocked(event)
}

// closeEnded closes a connection that has ended while it waited.
func (c *Conn) closeEnded() {
	_ = c.Conn.Close()
	c.notifyClosed()
	c.Host().Left()
}

// shut closes the connection permanently. If a worker has it, the worker calls the hook.
func (c *Conn) shut() error {
	c.mu.Lock()
	ended := c.endLocked(connState.close)
	leaves := c.state() == stateClosing
	c.mu.Unlock()
	if leaves {
		return nil
	}
	err := c.Conn.Close()
	if x := c.current.Load(); x != nil {
		x.clientGone() // the callback may have come before
	}
	if ended {
		c.notifyClosed()
		c.Host().Left()
	}
	return err
}

// finish is for a connection that is closed. It reports false.
func (c *Conn) finish() bool {
	c.transport().close()
	if c.end(connState.end) {
		c.Report(http.StateClosed)
		c.Host().Left()
	}
	return false
}

// hijacked is called when a handler hijacks the connection.
func (c *Conn) hijacked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endLocked(connState.hijack) {
		seam.RestoreFinalizer(c.Conn)
		seam.CountStalls(c.Conn, nil)
		c.queue.counts.Add(CountHijacked, 1)
		c.Host().Left()
	}
}

// notifyClosed logs a handshake that failed, and calls the user's hook for a closed connection, when no
// worker does. It may be called with locks held, unlike the hook.
func (c *Conn) notifyClosed() {
	noHandshake := c.TLS() != nil && !c.load().has(began) // perhaps
	if !noHandshake && c.server().ConnState == nil {
		return
	}
	go func() {
		if noHandshake {
			(*handshaker)(c).log()
		}
		c.Report(http.StateClosed)
	}()
}

// closeIf closes the connection, if is reports true, as net/http closes an idle one: over TLS with a
// close_notify, which may block for a while.
func (c *Conn) closeIf(is func(connState) bool) {
	c.mu.Lock() // a change may be under way
	closes := is(c.load())
	c.mu.Unlock()
	if closes {
		_ = c.Identity().Close()
	}
}

// rested closes a connection that waits now but should not. Shutdown and SetKeepAlivesEnabled make their
// change before they look for connections that wait, so one side always sees the other.
func (c *Conn) rested() {
	switch host := c.Host(); {
	case host.Ended():
		c.closeIf(isKept)
	case !host.KeepAlives():
		c.closeIf(isIdle) // a connection's first request is answered anyway
	}
}

// isKept is for a connection that waits, isServed for one that a worker has, and isIdle for one between
// two requests.
func isKept(s connState) bool   { return keptStates.has(s.state()) }
func isServed(s connState) bool { return servedStates.has(s.state()) }
func isIdle(s connState) bool {
	return s.state() == stateParked || s.state() == stateTakenOut && s.has(began)
}
