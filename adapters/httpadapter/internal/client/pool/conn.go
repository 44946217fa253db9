package pool

import (
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
)

// Conn is a connection to a server. If it serves one call at a time, the pool owns it while it is idle,
// and a call owns it otherwise.
type Conn struct {
	// immutable after the dial
	Host    *Host
	Link    link.Conn
	Streams Streams // nil if the connection serves one call at a time

	// atomic
	ended atomic.Pointer[ending] // nil until the connection ends
	state atomic.Uint32          // see below; idle begins and ends under Host.mu

	left   bool // guarded by Host.mu: Host.leaving counts the connection, or did until it ended
	reused bool // owned by the call: the connection was idle, or is about to be

	since int64 // when it became idle by the wall clock, in ns; written before that, read under Host.mu
}

// ending tells how a connection has ended: cause is why it was cancelled, or nil.
type ending struct{ cause error }

var notCancelled ending

// The states of a connection. Its callback is armed before it is idle, since others wait for the lock.
//
//	from                to      by
//	busy                arming  Put, before it arms the callback
//	arming              came    the callback: there may be something to read
//	arming              over    the callback, with an error
//	arming, came, over  idle    Put: it is in Host.idle; it notices what has come
//	arming, came, over  busy    Put: a call has begun to wait, and gets it if nothing has come
//	idle                busy    a call, or what closes it: it is out of Host.idle
//
// If Put fails, the connection is closed, whatever its state.
const (
	busy uint32 = iota // a call owns the connection, or it is closed
	arming
	came
	over
	idle
)

// Close closes the connection. It may be called more than once.
func (c *Conn) Close() { c.end(nil, true) }

// Cancel closes the connection. Canceled then returns cause.
func (c *Conn) Cancel(cause error) { c.end(cause, true) }

// Canceled returns the cause passed to Cancel, or nil if the connection was not cancelled.
func (c *Conn) Canceled() error {
	if e := c.ended.Load(); e != nil {
		return e.cause
	}
	return nil
}

// Detach removes the connection from the pool and leaves it open.
func (c *Conn) Detach() {
	c.Link.RestoreFinalizer()
	c.end(nil, false)
}

// Reused reports whether another call has used the connection. Only its current call may ask.
func (c *Conn) Reused() bool { return c.reused }

// end removes the connection from the pool, and closes it if closes is set.
func (c *Conn) end(cause error, closes bool) {
	e := &notCancelled
	if cause != nil {
		e = &ending{cause}
	}
	if !c.ended.CompareAndSwap(nil, e) {
		return
	}
	if closes {
		c.Link.Close(cause != nil) // a call that was cancelled doesn't wait for the farewell
	}
	h := c.Host
	h.mu.Lock()
	if c.left {
		h.leaving--
	} else {
		h.open--
	}
	h.Count.Add(Conns, -1)
	h.unlock()
}

// GiveBack returns a connection that the call got but doesn't use.
func (c *Conn) GiveBack() {
	if c.Streams == nil {
		_ = c.Put()
		return
	}
	c.Streams.Unreserve()
	if c.Host.pool.Base.DisableKeepAlives {
		c.Retire()
	}
}

// Put gives the connection to the first waiting call, or makes it idle. If it fails, Put closes the
// connection.
func (c *Conn) Put() (err error) {
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	h := c.Host
	base := h.pool.Base
	if base.DisableKeepAlives || base.MaxIdleConnsPerHost < 0 {
		return ErrKeepAlivesDisabled
	}
	c.reused = true
	if c.Link.IsTLS() && !c.Link.Look() {
		c.Close()
		return nil // as if it had been idle for a moment
	}
	for !h.give(c) {
		now := time.Now()
		c.since = now.UnixNano()
		c.state.Store(arming)
		if c.sleep(now) != nil { // without the lock, since others wait for it
			return errConnBroken
		}
		if kept, err := h.keep(c); kept || err != nil {
			return err
		}
		c.state.Store(busy)
		if !c.Link.Wake() {
			c.Close()
			return nil // the same
		}
	}
	return nil
}

// give gives a connection to the first waiting call. It reports false if no call waits, or bytes have
// come that can't answer it.
func (h *Host) give(c *Conn) bool {
	if h.waiting.Load() == 0 || !c.Link.IsWhole() || !c.Link.IsTLS() && c.Link.HasUnread() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.firstLocked()
	return w != nil && w.deliverLocked(dialed{conn: c})
}

// keep makes a connection idle whose callback is armed, or returns why it can't. It reports false
// without an error if a call has begun to wait.
func (h *Host) keep(c *Conn) (bool, error) {
	base := h.pool.Base
	perHost := base.MaxIdleConnsPerHost
	if perHost == 0 {
		perHost = http.DefaultMaxIdleConnsPerHost
	}
	h.mu.Lock()
	waits := h.firstLocked() != nil
	var err error
	switch {
	case waits && c.Link.IsWhole():
		h.mu.Unlock()
		return false, nil
	case waits:
		err = errConnBroken // the rest may never come, and a call waits for the place
	case h.pool.closing.Load():
		err = errCloseIdle
	case len(h.idle) >= perHost:
		err = errTooManyIdleHost
	}
	if err != nil {
		h.mu.Unlock()
		return false, err
	}
	came := c.state.Swap(idle)
	h.idle = append(h.idle, c)
	h.Count.Add(Idle, 1)
	h.mu.Unlock()
	if came != arming {
		c.notice(came == over)
	}
	if base.MaxIdleConns > 0 && h.pool.idleConns() > int64(base.MaxIdleConns) {
		h.pool.closeOldest()
	}
	return true, nil
}

// sleep arms the callback of a connection that is about to become idle.
func (c *Conn) sleep(now time.Time) error {
	var until time.Time
	if timeout := c.Host.pool.Base.IdleConnTimeout; timeout > 0 {
		until = now.Add(timeout)
	}
	return c.Link.Sleep(until, c)
}

// remove closes the connection if it is still idle.
func (c *Conn) remove() {
	h := c.Host
	h.mu.Lock()
	i := slices.Index(h.idle, c)
	if i >= 0 {
		h.popLocked(i)
	}
	h.mu.Unlock()
	if i >= 0 {
		c.Close()
	}
}

// OnReadable is called on the loop's goroutine when an idle connection ends, gets bytes without a
// request, or has been idle for IdleConnTimeout. It may also be called just before the connection
// becomes idle; then Put notices.
func (c *Conn) OnReadable(err error) {
	ended := err != nil
	now := came
	if ended {
		now = over
	}
	switch {
	case c.state.CompareAndSwap(arming, now):
	case c.Link.IsTLS():
		go c.notice(ended) // crypto/tls may call the user's functions, and write
	default:
		c.notice(ended)
	}
}

// notice closes an idle connection after its callback, unless nothing came, or only messages for
// crypto/tls. ended says that the callback got an error. A call may take the connection at the same
// time: see link.Conn.Wake.
func (c *Conn) notice(ended bool) {
	c.Link.Hold()
	defer c.Link.Release()
	if c.state.Load() != idle {
		return // a call took it, and knows
	}
	h := c.Host
	if !ended && c.Link.LookHeld() {
		h.mu.Lock()
		if c.state.Load() != idle || c.Link.Sleep(time.Time{}, c) == nil {
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
	c.remove()
}
