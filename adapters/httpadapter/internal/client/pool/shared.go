package pool

import (
	"slices"
	"time"
)

// This file has the pool's part for connections that many calls share. Such a connection stays in
// Host.shared while calls use it, until it takes no more streams. Its protocol reads from it, ends it
// when it has been idle for too long, and tells of its state: SetIdle, Roomy, Leave, Ended.
//
//	place                     calls                           leaves by
//	none yet, it was dialed   the one that it was dialed for  shareAndUnlock: listed, or neither
//	listed, in Host.shared    any, for which it has room      unshare: neither
//	neither, it goes away     those that have it already      its end
//
// Only the first two count for MaxConnsPerHost: the answers of the last may go on for days.
//
// A call takes the connection that had room last, without the host's lock, and reserves a stream, so
// that the connection is not idle. If the server allows no more streams on it, the call looks for
// another connection, and waits if no other has room: see Waiter.

// Streams are the streams of a shared connection.
type Streams interface {
	// Reserve reserves a stream, and reports false if there is no room. Unreserve undoes it.
	Reserve() bool
	Unreserve()

	// Quota returns how many more streams could be reserved.
	Quota() int

	// GoAway ends the connection when its streams have ended. GoAwayIfIdle ends it if no streams are open
	// or reserved, and reports whether that was so.
	GoAway()
	GoAwayIfIdle() bool
}

// SetIdle records whether the connection is without streams.
func (c *Conn) SetIdle(is bool) {
	n := int64(-1)
	if is {
		n = 1
	}
	c.Host.Count.Add(IdleShared, n)
}

// Roomy reports to the pool that the connection has room again after Reserve has failed.
func (c *Conn) Roomy() {
	c.Host.mu.Lock()
	c.Host.serveLocked()
	c.Host.unlock()
}

// Leave reports to the pool that the connection takes no more streams.
func (c *Conn) Leave() { c.Host.unshare(c) }

// Ended reports to the pool that the connection has ended.
func (c *Conn) Ended() {
	c.Host.unshare(c)
	c.end(nil, false)
}

// Retire makes the connection take no more calls. It ends when its streams have ended. A connection for
// a single call keeps its place until then.
func (c *Conn) Retire() {
	if !c.Host.pool.Base.DisableKeepAlives {
		c.Host.unshare(c)
	}
	c.Streams.GoAway()
}

// unshare removes a connection from the list, and frees its place.
func (h *Host) unshare(c *Conn) {
	h.mu.Lock()
	if !c.left && c.ended.Load() == nil {
		c.left = true
		h.open--
		h.leaving++
	}
	if i := slices.Index(h.shared, c); i >= 0 {
		h.shared = slices.Delete(h.shared, i, i+1)
		h.latest.CompareAndSwap(c, nil)
	}
	h.unlock()
}

// shareAndUnlock makes a connection dialed for w available to all calls, or ends it if it is not
// needed. One stream is reserved. w gets that stream even if the server is leaving already: the call
// has to learn why.
func (h *Host) shareAndUnlock(c *Conn, w *Waiter, took time.Duration) {
	if h.pool.Base.DisableKeepAlives {
		delivered := w.deliverLocked(dialed{conn: c})
		h.unlock()
		if !delivered {
			c.Retire()
		}
		return
	}
	h.took = max(took, 1)
	needed := w.place != nil || !c.left && !h.pool.closing.Load() && !h.hasRoomLocked()
	if needed && !c.left {
		h.shared = append(h.shared, c)
		h.latest.Store(c)
		if w.place == nil && h.firstLocked() != nil {
			w = h.firstLocked()
		}
	}
	delivered := w.deliverLocked(dialed{conn: c})
	h.serveLocked()
	h.endOrphansLocked()
	h.unlock()
	switch {
	case !needed:
		c.Retire()
	case !delivered:
		c.Streams.Unreserve()
	}
}

// serveLocked gives streams to waiting calls, as long as there is room.
func (h *Host) serveLocked() {
	for w := h.firstLocked(); w != nil; w = h.firstLocked() {
		c := h.reserveLocked()
		if c == nil {
			return
		}
		w.deliverLocked(dialed{conn: c})
	}
}

// reserveLocked reserves a stream and returns its connection. If there is no room it returns nil, and
// Conn.Roomy is called when there is room.
func (h *Host) reserveLocked() *Conn {
	for _, c := range h.shared {
		if c.Streams.Reserve() {
			h.latest.Store(c)
			return c
		}
	}
	return nil
}

// hasRoomLocked reports whether a stream could be reserved.
func (h *Host) hasRoomLocked() bool {
	return slices.ContainsFunc(h.shared, func(c *Conn) bool { return c.Streams.Quota() > 0 })
}

// latestOf reserves a stream on the connection that had room last, and returns the connection. It
// returns nil without room, or if the call would overtake waiting calls.
func (p *Pool) latestOf(r *Route) *Conn {
	v, ok := p.hosts[r.Kind].Load(r.Key)
	if !ok {
		return nil
	}
	h := v.(*Host)
	if conn := h.latest.Load(); conn != nil && h.waiting.Load() == 0 && conn.Streams.Reserve() {
		return conn
	}
	return nil
}

// closeIdleShared closes the shared connections without open or reserved streams.
func (h *Host) closeIdleShared() {
	h.mu.Lock()
	all := slices.Clone(h.shared)
	h.mu.Unlock()
	for _, c := range all {
		if c.Streams.GoAwayIfIdle() {
			h.unshare(c)
		}
	}
}
