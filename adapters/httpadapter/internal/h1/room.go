package h1

import (
	"net/netip"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/seam"
)

// This file is for the listener's Accept: when MaxConns are open and a client waits, Accept closes
// connections that are idle, or have only a detached answer. See package accepting. (Package h2 does the
// same for HTTP/2.)
//
// How long a connection has waited follows from its deadline, which each wait sets. If the http.Server
// has no timeout, the deadline is one that never comes.

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

// detached returns the detached answer whose handler has returned, or nil.
func (i idleConn) detached() *Answer {
	w := i.c.current.Load()
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.detached == nil || w != &w.detached.watched {
		return nil
	}
	return w.detached
}

// detachedConn is a connection with a detached answer for Accept.
type detachedConn struct{ a *Answer }

// CloseIdle implements [accepting.IdleConn]: it cuts the answer.
func (d detachedConn) CloseIdle(int64) bool { return d.a.owner.Gone(accepting.ErrShare) }

// idleConn is a Conn for Accept.
type idleConn struct{ c *Conn }

// idleSince returns since when the connection has waited for a request, or for its first byte; 0: it
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
	c.mu.Lock() // else a request could begin and end in between, with the next one on its way
	defer c.mu.Unlock()
	if i.idleSince() != since || seam.HasUnread(c.Conn) || c.kept != nil || !c.endLocked(connState.closeIdle) {
		return false
	}
	go i.closeForRoom() // the user's OnClose may call anything, and close_notify may block
	return true
}

// farewellTime is how long close_notify may take to a client that doesn't read.
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
