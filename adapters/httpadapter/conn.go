package httpadapter

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
)

// conn is a percore connection as net/http and the user see it: one object from Accept to Close,
// however often it is parked, so that a program that keeps it as the key of a map, or in a context,
// finds it again. net/http gets a lease: the same conn, which it considers a new connection each time.
// Over TLS the lease is a *tlsConn, and the *tls.Conn reads from the conn.
//
// state.go has the states and all changes of them, and state_lease.go those that are between net/http
// and its lease. The methods are in files by their caller:
//
//	caller                             file              it begins with
//	the accept loop                    conn_accept.go    newConn, start
//	the loop, by its callback          conn_loop.go      waker.OnReadable
//	a worker of the fast path          turn.go           serve; exchange.go has a request and its answer
//	                                   stream.go         reads and writes; over TLS tls_stream.go
//	net/http                           conn_nethttp.go   leaseOut, Read, Write and others, leaseClosed
//	                                   timeouts.go       SetReadDeadline and the other two
//	the sweeper, Shutdown and others   conn_sweeper.go   expireRead, hangUp: for each connection
//	that look through all of them
//	HandOver                           handover.go       takeOut, putBack, closeMoved
//	a goroutine of its own             tls_handshake.go  handshake
//	the user, once it is hijacked      conn_user.go      Read, Write, OnReadable and others
//	any of them                        conn.go           the state, Close
type conn struct {
	*percore.Conn // immutable

	// immutable
	queue *connQueue
	ext   *connExt // nil on a plain connection without ConnContext

	// atomic; changed with mu held, except where each request would have to take it. Without mu the
	// worker and the callback change serving and notified, the goroutine of net/http that serves the
	// lease changes opening, busy and idle, and SetReadDeadline changes idle. Every change is a
	// compare-and-swap: if two goroutines make one at the same time, the slower tries again.
	packed atomic.Uint32 // a connState

	// guarded by queue.mu
	index int32 // in queue.mu.kept or queue.mu.leased; -1: in neither

	// owned by the worker that has the connection, by the loop when it waits, and by net/http
	unread *unread // nil on a connection whose requests were all plain

	// atomic
	current atomic.Pointer[watched] // of the request that a worker serves, or of an answer that waits

	mu sync.Mutex

	// atomic; written with mu held, and by the goroutine that serves the lease
	real atomicInstant // the read deadline that net/http or the user has set
}

// connExt holds the parts that only some connections need.
type connExt struct {
	ctx    context.Context // the result of the user's ConnContext
	tls    *tls.Conn       // the connection as the user sees it
	lease  net.Conn        // the lease for net/http, after the handshake: tls itself, or a *tlsConn
	limit  bool            // the handshake has a deadline; guarded by mu
	begun  atomic.Bool     // one of the user's hooks has begun the handshake
	reader tlsReader       // for the fast path
	cut    error           // of a write that failed; guarded by crypto/tls, which writes one record at a time

	shaking atomic.Pointer[serving.Handshake] // that is under way; nil: none
}

// load returns the state and its bits, and lease the same for net/http's side.
func (c *conn) load() connState   { return connState(c.packed.Load()) }
func (c *conn) lease() leaseState { return leaseState(c.load()) }

// loadLocked waits for a change that is under way, and returns the state after it. (leaseClosed holds
// mu until the outcome is known.)
func (c *conn) loadLocked() connState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load()
}

// state returns the state.
func (c *conn) state() state { return c.load().state() }

// swap changes the state and its bits unless another goroutine was faster.
func (c *conn) swap(from, to connState) bool {
	if !c.packed.CompareAndSwap(uint32(from), uint32(to)) {
		return false
	}
	checkChange(from, to)
	if (from^to)&stateMask != 0 {
		c.queue.gauge(from, -1)
		c.queue.gauge(to, +1)
	}
	return true
}

// swapLease is swap for net/http's side.
func (c *conn) swapLease(from, to leaseState) bool { return c.swap(connState(from), connState(to)) }

// change applies event to the state, and tries again if another goroutine has changed the state
// meanwhile. It returns the state afterwards, and false if event doesn't apply to it.
func (c *conn) change(event func(connState) (connState, bool)) (connState, bool) {
	for {
		from := c.load()
		switch to, ok := event(from); {
		case !ok:
			return from, false
		case to == from || c.swap(from, to):
			return to, true
		}
	}
}

// changeLease is change for net/http's side. It returns false if the connection isn't leased.
func (c *conn) changeLease(event func(leaseState) (leaseState, bool)) (leaseState, bool) {
	s, ok := c.change(func(s connState) (connState, bool) {
		to, ok := event(leaseState(s))
		return connState(to), ok && s.state() == stateLeased
	})
	return leaseState(s), ok
}

// changeLocked is change with mu held: only the lease's goroutine may make other changes meanwhile.
func (c *conn) changeLocked(event func(connState) (connState, bool)) (connState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.change(event)
}

// changeLeaseLocked is changeLocked for net/http's side.
func (c *conn) changeLeaseLocked(event func(leaseState) (leaseState, bool)) (leaseState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changeLease(event)
}

// identity is the connection that the user's hooks get: the one that package net and crypto/tls
// would have made.
func (c *conn) identity() net.Conn {
	if c.isTLS() {
		return c.ext.tls
	}
	return c
}

// context returns the parent of the contexts of the connection's requests.
func (c *conn) context() context.Context {
	if c.ext != nil && c.ext.ctx != nil {
		return c.ext.ctx
	}
	return c.queue.call.ctx
}

func (c *conn) isTLS() bool { return c.ext != nil && c.ext.tls != nil }

// endLocked makes a change, and reports whether that has hijacked or finally closed the connection.
// If so, the queue has forgotten it, and the caller, which holds mu, must release the call as soon as
// the connection is closed: Shutdown waits for that.
func (c *conn) endLocked(event func(connState) (connState, bool)) (ended bool) {
	to, ok := c.change(event)
	if !ok || to.state() != stateClosed && to.state() != stateHijacked {
		return false
	}
	c.queue.forget(c)
	return true
}

// Close closes the connection, whether it is parked or not, unless net/http gives a
// lease back by it.
func (c *conn) Close() error {
	if !c.isTLS() && c.endLease() {
		return nil
	}
	return c.shut()
}

// endLease notes that net/http has closed a lease after its Read has returned io.EOF. It reports false
// if a Close means something else.
func (c *conn) endLease() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.changeLease(leaseState.endLease)
	return ok
}

// shut closes the connection permanently. If net/http has it, net/http calls the hook.
func (c *conn) shut() error {
	c.mu.Lock()
	ended := c.endLocked(connState.close)
	leaves := c.state() == stateClosing
	c.mu.Unlock()
	if leaves {
		return nil
	}
	err := c.Conn.Close()
	if c.state() == stateHijacked {
		c.unread.drop()
	}
	if x := c.current.Load(); x != nil {
		x.clientGone() // the callback may have come before
	}
	if ended {
		c.notifyClosed()
		c.queue.call.release()
	}
	return err
}

// shutFirst notes that a lease is about to be closed.
func (c *conn) shutFirst() {
	c.changeLocked(func(s connState) (connState, bool) {
		to, ok := s.close()
		return to, ok && !keptStates.has(s.state())
	})
}

// notifyClosed calls the user's hook for a closed connection, when net/http can't. Before that it
// reports a handshake that failed to the log. It may be called with locks held, unlike the hook.
func (c *conn) notifyClosed() {
	s := c.queue.server
	noHandshake := c.isTLS() && !c.load().has(began) // perhaps
	if !noHandshake && s.user.connState == nil {
		return
	}
	go func() {
		if noHandshake {
			c.logHandshake()
		}
		s.report(c.identity(), http.StateClosed)
	}()
}
