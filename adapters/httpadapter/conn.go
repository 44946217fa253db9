package httpadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/moving"
)

// conn is a connection of percore's as net/http and the user see it: one object from
// Accept to Close, however often it is parked, so that a program that keeps it as the key
// of a map, or in a context, finds it again. net/http is given a lease: the same conn,
// which it takes for a new connection each time. Over TLS the lease is a *tlsConn, and the
// *tls.Conn reads from this.
//
// state.go has the states and all changes of them. Here a connection waits without net/http,
// and ends; lease.go has the calls that net/http makes.
//
// # Deadlines
//
// The engine's read deadline is real, with one exception: a Read that has waited for a
// request for long enough is ended by one in the past (see sweeper).
// While parked, IdleTimeout goes on where it was, since real is the last that net/http
// has set. In opening, after having been parked, net/http sets the deadline for the
// header too early, since it does not know that it still waits: that is ignored, and
// set when the first bytes are there.
type conn struct {
	*percore.Conn // immutable

	// immutable
	queue *connQueue
	ext   *connExt // nil on a plain connection without ConnContext

	// atomic; changed with mu held and, without it, by the goroutine of net/http that serves
	// the lease, in opening, busy and idle, and by SetReadDeadline in idle. Changes that both
	// may make are made by swap. So a request costs no lock.
	packed atomic.Uint32 // a connState

	// guarded by queue.mu
	index int32 // in queue.mu.kept or queue.mu.leased; -1: in neither

	// owned by the worker that has the connection, by the loop when it waits, and by net/http
	unread *unread // nil on a connection whose requests were all plain

	// atomic
	current atomic.Pointer[exchange] // the request that a worker serves

	mu sync.Mutex

	// atomic; written with mu held, and by the goroutine that serves the lease
	real atomicInstant // the read deadline that net/http or the user has set
}

// connExt holds the parts that only some connections need.
type connExt struct {
	ctx    context.Context // the result of the user's ConnContext
	tls    *tls.Conn       // the connection as the user sees it
	lease  net.Conn        // the lease for net/http, once hands are shaken: tls itself, or a *tlsConn
	begun  atomic.Bool     // a hook of the user's has begun to shake hands
	reader tlsReader       // for the fast path
}

// load returns the state and its bits.
func (c *conn) load() connState { return connState(c.packed.Load()) }

// loadLocked is load after a change that is under way. (endOfLease holds mu until it is clear
// the connection's fate.)
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
	if from, to := from.state(), to.state(); from != to {
		n := c.queue.server.stats
		n.gauge(from, -1)
		n.gauge(to, +1)
	}
	return true
}

// change makes a change, however many others are made meanwhile. It returns the result of
// the connection, and false if the change has no meaning in the state at hand.
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

// identity is the connection that the user's hooks get: the one that package net and crypto/tls
// would have made.
func (c *conn) identity() net.Conn {
	if c.isTLS() {
		return c.ext.tls
	}
	return c
}

func (c *conn) isTLS() bool { return c.ext != nil && c.ext.tls != nil }

// newConn makes a connection, counts it and tells the user of it.
func (q *connQueue) newConn(pc *percore.Conn) *conn {
	call := q.call
	c := &conn{Conn: pc, queue: q, index: -1}
	if call.tls != nil {
		c.ext = &connExt{ctx: call.ctx, tls: tls.Server(c, call.tls)}
	}
	if call.tls == nil && moving.ConnInfoOf != nil && moving.ConnInfoOf(pc).Served {
		c.packed.Store(uint32(connState(began)))
		call.server.stats.add(countAdopted, 1)
	}
	call.refs.Add(1)
	call.server.stats.add(countConns, 1)
	c.introduce()
	return c
}

// introduce calls the user's ConnContext and ConnState, for one connection of the
// call after the other, as net/http does.
func (c *conn) introduce() {
	call := c.queue.call
	user := &call.server.user
	if user.connContext == nil && user.connState == nil {
		return
	}
	call.introducing.Lock()
	defer call.introducing.Unlock()
	if user.connContext != nil {
		if c.ext == nil {
			c.ext = &connExt{}
		}
		c.ext.ctx = user.connContext(call.ctx, c.identity())
		if c.ext.ctx == nil {
			panic("ConnContext returned nil")
		}
	}
	call.server.report(c.identity(), http.StateNew)
	if c.load().has(began) {
		call.server.report(c.identity(), http.StateIdle)
	}
}

// start lets a new connection wait for its first byte, for as long as net/http gives
// it: for TLS that is for all of the handshake. One that has had requests in another process waits
// for the next, as an idle one.
func (c *conn) start() {
	if moving.Hold != nil {
		moving.Hold(c.Conn) // by the queue, a worker, or net/http, until hijacked
	}
	c.mu.Lock()
	if c.load().has(began) {
		c.setRealDeadlineLocked(c.queue.server.idleDeadline())
	} else {
		c.limitFirstByteLocked()
	}
	if c.state() != stateNew || !c.queue.keep(c) {
		// The user's hook has closed it, or the server is shut down.
		c.change(connState.close)
		ended := c.endLocked(connState.end)
		c.mu.Unlock()
		_ = c.Conn.Close()
		c.notifyClosed()
		if ended {
			c.queue.call.release()
		}
		return
	}
	// If a hook has begun to shake hands crypto/tls may have the next bytes in its buffer.
	shaking := c.isTLS() && c.ext.begun.Load()
	c.change(func(s connState) (connState, bool) { return s.keep(shaking) })
	c.mu.Unlock()
	switch {
	case shaking:
		go c.handshake()
		return
	case !c.offer():
		c.arm()
	}
	c.rested()
}

// rested is for a connection that waits now, and perhaps should not. Shutdown and
// SetKeepAlivesEnabled look for it after they have made their change, so one of the two sees the
// other's.
func (c *conn) rested() {
	switch call := c.queue.call; {
	case call.ended.Load():
		c.hangUp()
	case !call.keepsAlive():
		c.hangUpIdle() // a connection's first request is answered all the same
	}
}

func (c *conn) limitFirstByteLocked() {
	limit := c.queue.server.firstByteTimeout(c.isTLS())
	if limit == 0 {
		return
	}
	at := instant(monotime.After(limit))
	c.real.set(at)
	_ = c.Conn.SetReadDeadline(at.time())
	if c.isTLS() {
		_ = c.Conn.SetWriteDeadline(at.time())
	}
}

// arm has the engine call woken when there is something to read.
func (c *conn) arm() {
	switch err := c.Conn.NotifyReadable((*waker)(c)); {
	case err == nil, errors.Is(err, loop.ErrArmed): // as it may be on the fast path: see turn.disarm
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.woken(os.ErrDeadlineExceeded)
	default:
		c.woken(net.ErrClosed)
	}
}

// armAnew is arm with the deadline that counts. The engine's may be another one, which has passed: a
// handler's goroutine may set its deadline at the same time as the worker.
func (c *conn) armAnew() {
	c.mu.Lock()
	_ = c.Conn.SetReadDeadline(c.real.get().time())
	c.mu.Unlock()
	c.arm()
}

// waker is a conn as the engine's handler. (The conn's own OnReadable is
// percore.Conn's, for hijacked connections.)
type waker conn

// OnReadable implements [percore.ReadableHandler].
func (w *waker) OnReadable(err error) { (*conn)(w).woken(err) }

// OffLoop allows a worker that visits a loop to call OnReadable, which may be called on any goroutine
// without locks, and at any time.
func (w *waker) OffLoop() {}

// visitLoop looks for connections on c's loop that have something to read, for a worker that has no
// other to serve.
func (c *conn) visitLoop(linger bool) {
	switch l := (*loop.Loop)(c.Conn.Loop()); {
	case l == nil:
	case linger:
		l.Linger()
	default:
		l.Visit()
	}
}

// woken ends a wait of the states fresh and parked, and tells a request of the fast path that its
// client has left. It runs on the engine's loop, or on a worker that visits it: calls that may block
// are made elsewhere.
func (c *conn) woken(err error) {
	x := c.current.Load()
	switch {
	case x == nil:
	case c.isTLS() && !errors.Is(err, net.ErrClosed):
		go x.watch()
		return
	case x.notice(err):
		return
	}
	c.wakeAfter(x, err)
}

// wakeAfter is woken when x, the request under way, was told, if there is one.
func (c *conn) wakeAfter(x *exchange, err error) {
	if _, ok := c.change(connState.notify); ok {
		c.watchNext(x, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch st := c.state(); {
	case st == stateTakenOut:
		c.change(connState.disarm)
	case st != stateFresh && st != stateParked: // closed meanwhile
	case c.isTLS() && c.ext.lease == nil:
		// If err says that time is up the handshake fails at once, and net/http
		// logs it.
		c.change(connState.handshake)
		go c.handshake()
	case errors.Is(err, os.ErrDeadlineExceeded) && !c.real.get().passed() && c.queue.call.fast:
		// A deadline that a handler has set ended the wait, or was about to, before the request was
		// answered. It is gone.
		go c.armAnew()
	case c.unread.hasBytes() && (err != nil || c.Conn.AtEnd()):
		c.enqueueLocked() // net/http ends a header that was cut off
	case err != nil:
		// IdleTimeout, or ReadHeaderTimeout without a byte; or the percore.Conn was closed
		// behind our back.
		go c.hangUp()
	case st == stateParked && !c.isTLS() && c.Conn.AtEnd():
		// The client has gone. net/http, with a lease, would find out and close.
		go c.hangUp()
	case c.queue.call.fast:
		c.change(connState.serve)
		c.queue.workers.Serve(c)
	default:
		c.enqueueLocked()
	}
}

// watchNext is for a callback that came during x and was noted after the next request had begun, if one
// has: that takes the callback for armed, since a worker that begins a request arms it only if it finds
// it noted. The worker makes the request known first, and asks then, so one of the two sees the other.
func (c *conn) watchNext(x *exchange, err error) {
	switch next := c.current.Load(); {
	case next == nil || next == x:
	case c.isTLS():
		go next.watch()
	default:
		next.notice(err)
	}
}

// enqueueLocked gives a kept connection to net/http's Accept.
func (c *conn) enqueueLocked() {
	c.change(connState.enqueue)
	if !c.queue.push(c) {
		go c.hangUp()
	}
}

// lend turns a queued connection into a lease for net/http, or returns nil if it
// was closed meanwhile.
func (c *conn) lease() net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateQueued {
		return nil
	}
	if c.isTLS() && c.ext.lease == net.Conn(c.ext.tls) {
		c.giveAwayLocked()
		return c.ext.lease
	}
	tick := c.queue.leaseOut(c)
	if to, _ := c.change(func(s connState) (connState, bool) { return s.lease(tick) }); to.has(began) {
		c.queue.server.stats.add(countUnparks, 1)
	}
	if c.isTLS() {
		return c.ext.lease
	}
	return c
}

func (c *conn) giveAwayLocked() {
	c.queue.forget(c)
	c.change(connState.giveAway)
	if c.ext.tls.ConnectionState().HandshakeComplete {
		c.queue.server.stats.add(countHTTP2, 1)
	} // else net/http tells the log and the client
}

// leaseClosed is net/http's StateClosed: the goroutine that served the lease, which
// it has closed, has done its last with it. It reports whether the connection is parked
// now. Otherwise it is closed, or the call is the user's.
func (c *conn) leaseClosed() (parked bool) {
	c.mu.Lock()
	if c.state() == stateEnded && c.keepLocked() {
		c.mu.Unlock()
		if !c.offer() {
			c.arm()
		}
		return true
	}
	lease := c.state() == stateEnded // alone was closed
	if !c.queue.call.parks() {
		_, lease = c.change(connState.closeLeased) // a net/http of which nothing is known may do that after this, or never
	}
	ended := c.endLocked(connState.end)
	c.mu.Unlock()
	if lease {
		_ = c.identity().Close()
	}
	if ended {
		c.queue.call.release()
	}
	return false
}

// keepLocked keeps a connection that net/http has given back, and returns false if net/http
// would never take it another time.
func (c *conn) keepLocked() bool {
	s := c.queue.server
	// Kept first, then asked: SetKeepAlivesEnabled does it the other way round.
	if !c.queue.takeBack(c) || c.queue.call.keepAlivesOff.Load() {
		return false
	}
	to, _ := c.change(connState.giveBack)
	if to.state() == stateParked {
		s.stats.add(countParks, 1)
	}
	_ = c.Conn.SetReadDeadline(c.real.get().time())
	if to&(predated|dated|bare) == 0 {
		// Nothing came of the lease, and net/http may have set it all the same. It would
		// not pass unnoticed: crypto/tls answers a KeyUpdate as it reads.
		_ = c.Conn.SetWriteDeadline(time.Time{})
	}
	return true
}

// hijacked is net/http's StateHijacked, which comes while a request is under way.
func (c *conn) hijacked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endLocked(connState.hijack) {
		if moving.Release != nil {
			moving.Release(c.Conn)
		}
		c.queue.server.stats.add(countHijacked, 1)
		c.queue.call.release()
	}
}

// endLocked gives the connection up if the event hijacks or closes it, as which it stays, and
// reports whether it does. Then the caller, which holds mu, releases the call, when it has
// closed the connection: Shutdown waits for that.
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

// endLease notes that net/http has closed the lease that it was told the end of,
// and reports false if a Close means something else.
func (c *conn) endLease() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.change(connState.endLease)
	return ok
}

// shut closes the connection for good. If net/http has it, net/http tells the user.
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

// closeServed closes a connection that a worker has, which tells the user.
func (c *conn) closeServed() {
	if servedStates.has(c.loadLocked().state()) {
		_ = c.identity().Close()
	}
}

// shutFirst notes that a lease is about to be closed.
func (c *conn) shutFirst() {
	c.changeLocked(func(s connState) (connState, bool) {
		to, ok := s.close()
		return to, ok && !keptStates.has(s.state())
	})
}

// notifyClosed tells the user that the connection is closed, when net/http can't, and the log
// of a handshake that failed, before. It may be called where the user must not be, with
// locks held.
func (c *conn) notifyClosed() {
	s := c.queue.server
	unshaken := c.isTLS() && !c.load().has(began) // perhaps
	if !unshaken && s.user.connState == nil {
		return
	}
	go func() {
		if unshaken {
			c.logHandshake()
		}
		s.report(c.identity(), http.StateClosed)
	}()
}

// hangUp closes a connection that is kept, as net/http closes an idle one: over
// TLS with a farewell, which may block for a while.
func (c *conn) hangUp() {
	if keptStates.has(c.loadLocked().state()) {
		_ = c.identity().Close()
	}
}

// hangUpIdle is hangUp for a connection between two requests.
func (c *conn) hangUpIdle() {
	switch s := c.loadLocked(); s.state() {
	case stateQueued, stateTakenOut:
		if !s.has(began) {
			return
		}
		fallthrough
	case stateParked:
		_ = c.identity().Close()
	}
}

// hangUpResuming closes a connection that net/http takes for new but would know as
// idle if it hadn't been parked: it closes both, but the new one only when that is
// some seconds old.
func (c *conn) hangUpResuming() {
	c.mu.Lock()
	_, resuming := c.change(func(s connState) (connState, bool) {
		to, _ := s.close()
		return to, s.resuming()
	})
	c.mu.Unlock()
	if resuming {
		_ = c.identity().Close()
	}
}
