package h1

import (
	"net/netip"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/seam"
)

// This file has the part of the listener's Accept, which closes connections between two requests when
// MaxConns are open and a client waits, and those with detached answers: see internal/accepting's room.
// (HTTP/2's are h2's.)
//
// How long a connection has waited follows from its deadline, which is set for each wait anyway. Where
// the http.Server has no timeout it gets one that never comes.

// EachIdle implements [accepting.Idler].
func (s *Server) EachIdle(_ *accepting.Limits, do func(c accepting.IdleConn, since int64, peer netip.Addr)) {
	for _, q := range s.Queues {
		q.each(func(c *Conn) {
			idle := idleConn{c}
			if since := idle.idleSince(); since != 0 {
				do(idle, since, c.RemoteAddrPort().Addr())
			} else if a := idle.detached(); a != nil && a.owner.GoesOn() {
				do(detachedConn{a}, accepting.Detached, c.RemoteAddrPort().Addr())
			}
		})
	}
}

// detached returns the answer that is detached, if its handler has returned, or nil.
func (i idleConn) detached() *Answer {
	w := i.c.current.Load()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stream == nil || w != &w.stream.watched {
		return nil
	}
	return w.stream
}

// detachedConn is a connection with a detached answer for Accept.
type detachedConn struct{ a *Answer }

// CloseIdle implements [accepting.IdleConn]: it cuts the answer.
func (d detachedConn) CloseIdle(int64) bool { return d.a.owner.Gone(accepting.ErrShare) }

// idleConn is a Conn for Accept.
type idleConn struct{ c *Conn }

// idleSince returns since when the connection has waited for a request, or for the first byte; 0: it
// doesn't wait.
func (i idleConn) idleSince() int64 {
	c := i.c
	limit := time.Duration(0)
	switch s := c.server(); c.state() {
	case stateParked:
		limit = s.idleTime()
	case stateFresh:
		limit = s.firstByteTime(c.TLS() != nil)
	}
	real := c.real.get()
	if limit == 0 || real == 0 {
		return 0
	}
	return int64(real) - int64(limit)
}

func (i idleConn) CloseIdle(since int64) bool {
	c := i.c
	c.mu.Lock() // or a request could begin and end in between, and the client's next one be on its way
	defer c.mu.Unlock()
	if i.idleSince() != since || seam.HasUnread(c.Conn) || c.kept != nil || !c.endLocked(connState.closeIdle) {
		return false
	}
	go i.closeForRoom() // the user's OnClose may call anything, and TLS's farewell may block
	return true
}

// farewellTime is how long TLS's farewell may take to a client that doesn't read.
const farewellTime = 100 * time.Millisecond

// closeForRoom closes a connection that has ended.
func (i idleConn) closeForRoom() {
	c := i.c
	if c.TLS() != nil {
		cut := time.AfterFunc(farewellTime, func() { _ = c.Conn.Close() })
		_ = c.ext.tls.Close()
		cut.Stop()
	}
	c.closeEnded()
}
