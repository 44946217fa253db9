package httpadapter

import "github.com/percore/percore/internal/monotime"

// This file has what is called for each connection of a queue in turn. The sweeper and HandOver look
// for leases to park, and Shutdown, Close and SetKeepAlivesEnabled for connections to close.

// expireRead makes the engine end the Read, waiting or about to, of a connection that was seen,
// if that still waits: the next wait would have noted another tick.
func (c *conn) expireRead(seen leaseState) {
	if c.queue.call.keepAlivesOff.Load() {
		return // it would be closed, and net/http, which waits, perhaps knows that keep-alives are on again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if to, ok := seen.expireRead(); ok && c.swapLease(seen, to) {
		_ = c.Conn.SetReadDeadline(monotime.LongAgo)
	}
}

// closeServed closes a connection that a worker has, which calls the hook.
func (c *conn) closeServed() {
	if servedStates.has(c.loadLocked().state()) {
		_ = c.identity().Close()
	}
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
	_, resuming := c.changeLeaseLocked(func(s leaseState) (leaseState, bool) { return s.close(), s.resuming() })
	if resuming {
		_ = c.identity().Close()
	}
}
