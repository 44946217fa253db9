package h2

import (
	"net/netip"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/seam"
)

// room drains connections without streams, or with detached streams only, when as many are open as
// their listener's MaxConns allows and a client waits: see internal/accepting.
type room struct{ s *Server }

// joinRoom makes the Accept of c's listener find the server's connections, if their number is limited.
func (s *Server) joinRoom(c *Conn) {
	limits := c.listenerLimits()
	if limits.Max() == 0 {
		return
	}
	if s.enterRoom(limits) {
		limits.AddIdler(room{s}) // without mu, which Accept takes under a lock of its own
		if s.hasEnded() {
			limits.RemoveIdler(room{s}) // leaveRoom may have come before
		}
	}
}

// enterRoom reports whether the server has limits for the first time, and has not ended.
func (s *Server) enterRoom(limits *accepting.Limits) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.mu.limited[limits]; known || s.mu.ended {
		return false
	}
	if s.mu.limited == nil {
		s.mu.limited = make(map[*accepting.Limits]struct{})
	}
	s.mu.limited[limits] = struct{}{}
	return true
}

func (s *Server) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended
}

// leaveRoom undoes joinRoom for all listeners.
func (s *Server) leaveRoom(limited map[*accepting.Limits]struct{}) {
	for limits := range limited {
		limits.RemoveIdler(room{s})
	}
}

// listenerLimits returns the limits of the connection's listener, or nil.
func (c *Conn) listenerLimits() *accepting.Limits {
	if c.below.pc == nil {
		return nil
	}
	return seam.LimitsOf(c.below.pc)
}

// EachIdle implements [accepting.Idler].
func (r room) EachIdle(l *accepting.Limits, do func(c accepting.IdleConn, since int64, peer netip.Addr)) {
	for _, c := range r.s.conns() {
		if since := c.waitsSince(); since != 0 && c.listenerLimits() == l {
			do(idleConn{c}, since, c.below.pc.RemoteAddrPort().Addr())
		}
	}
}

// waitsSince returns since when the connection has had no stream, [accepting.Detached] if all its
// streams are that, or 0.
func (c *Conn) waitsSince() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waitsSinceLocked()
}

func (c *Conn) waitsSinceLocked() int64 {
	switch {
	case c.phase != alive, c.open > c.detached, c.clock.ending().drainedAt != 0:
		return 0
	case c.open > 0:
		return accepting.Detached
	}
	return c.clock.quietAt
}

// idleConn is a Conn for Accept.
type idleConn struct{ c *Conn }

// CloseIdle implements [accepting.IdleConn]. The client is told first, as by IdleTimeout, and a stream
// that it opens at this moment is served.
func (i idleConn) CloseIdle(since int64) bool {
	c := i.c
	if seam.HasUnread(c.below.pc) || !c.makeRoom(since) {
		return false
	}
	go func() { // what is due may call the handler, and sending may block
		c.mu.Lock()
		defer c.unlock()
		c.flushSoonLocked()
	}()
	return true
}

// makeRoom drains the connection if it has had no stream since then, or resets all its streams if they
// are detached. It leaves the calls that this makes due to a later unlock.
func (c *Conn) makeRoom(since int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waitsSinceLocked() != since {
		return false
	}
	c.clock.makeEnding().hurried = true
	if since == accepting.Detached {
		c.core.Each(func(st *http2.Stream) { st.User.(*Stream).resetLocked(EnhanceYourCalm, accepting.ErrShare) })
		c.drainLocked(untold)
	} else {
		c.idledLocked()
	}
	return true
}
