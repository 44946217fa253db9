package h1

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// This file has the deadlines that the http.Server's timeouts ask for. Conn.real is the read deadline
// that a timeout or the user has set in the engine.

// instant is a deadline, as monotime has it. 0 is none.
type instant int64

func instantOf(t time.Time) instant {
	if t.IsZero() {
		return 0
	}
	at, _ := monotime.Of(t)
	return instant(at)
}

func (at instant) time() time.Time {
	if at == 0 {
		return time.Time{}
	}
	return monotime.Time(int64(at))
}

func (at instant) passed() bool { return at != 0 && int64(at) <= monotime.Now() }

// atomicInstant is an instant that several goroutines use.
type atomicInstant struct{ v atomic.Int64 }

func (a *atomicInstant) get() instant { return instant(a.v.Load()) }

// set costs less if nothing changes: most connections never have a deadline.
func (a *atomicInstant) set(at instant) {
	if a.get() != at {
		a.v.Store(int64(at))
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// headerTimeout returns how long a header may take, or 0.
func (s *Server) headerTimeout() time.Duration {
	if s.HTTP.ReadHeaderTimeout != 0 {
		return max(s.HTTP.ReadHeaderTimeout, 0)
	}
	return max(s.HTTP.ReadTimeout, 0)
}

// headerDeadline returns the deadline for a header that begins now.
func (s *Server) headerDeadline() instant { return deadlineIn(s.headerTimeout()) }

// deadlineIn returns the deadline of what begins now and may take as long as limit, or none for 0.
func deadlineIn(limit time.Duration) instant {
	if limit > 0 {
		return instant(monotime.After(limit))
	}
	return 0
}

// BeginTime limits a handshake, and HTTP/2's preface in cleartext, if the http.Server has no timeout. It
// is as long as package h2 waits for SETTINGS, and http.DefaultTransport for a handshake.
const BeginTime = 10 * time.Second

// firstByteTime returns how long a connection may take for its first byte, or 0: in cleartext net/http's
// limit for a header, over TLS its limit for a handshake, or else BeginTime.
func (s *Server) firstByteTime(overTLS bool) time.Duration {
	if !overTLS {
		return s.orNever(s.headerTimeout())
	}
	least := time.Duration(0)
	for _, d := range []time.Duration{s.HTTP.ReadHeaderTimeout, s.HTTP.ReadTimeout, s.HTTP.WriteTimeout} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	if least == 0 {
		least = s.beginTimeout()
	}
	return s.orNever(least)
}

// beginTimeout returns the limit for what comes before requests if the http.Server has none. It is 0 if
// a timeout is below 0, which says that none is wanted.
func (s *Server) beginTimeout() time.Duration {
	if s.HTTP.ReadHeaderTimeout < 0 || s.HTTP.ReadTimeout < 0 || s.HTTP.WriteTimeout < 0 {
		return 0
	}
	return s.BeginTime
}

// idleTime returns how long a connection may wait for a request, or 0.
func (s *Server) idleTime() time.Duration {
	d := s.HTTP.IdleTimeout
	if d == 0 {
		d = s.HTTP.ReadTimeout
	}
	return s.orNever(max(d, 0))
}

// idleNever stands for no timeout if the number of connections is limited: see room.go.
const idleNever = 1000 * 24 * time.Hour

func (s *Server) orNever(d time.Duration) time.Duration {
	if d == 0 && s.Limits != nil {
		return idleNever
	}
	return d
}

// idleDeadline returns the deadline of a wait for a request that begins now.
func (s *Server) idleDeadline() instant { return deadlineIn(s.idleTime()) }

// limitFirstByteLocked sets the deadline for the first byte, over TLS for the handshake. If the
// http.Server has no timeout, a deadline that a hook has set for a handshake stays.
func (c *Conn) limitFirstByteLocked() {
	limit := c.server().firstByteTime(c.TLS() != nil)
	if limit == 0 || c.TLS() != nil && limit == c.server().BeginTime && c.real.get() != 0 {
		return
	}
	at := instant(monotime.After(limit))
	c.setRealDeadlineLocked(at)
	if c.TLS() != nil {
		c.ext.limit = true
		_ = c.Conn.SetWriteDeadline(at.time())
	}
}

func (c *Conn) setRealDeadline(at instant) {
	if c.real.get() != at {
		c.mu.Lock() // a handler may set one at the same time
		defer c.mu.Unlock()
		c.setRealDeadlineLocked(at)
	}
}

func (c *Conn) setRealDeadlineLocked(at instant) {
	c.real.set(at)
	c.restoreReadDeadline()
}

// restoreReadDeadline sets the real deadline in the engine. The caller holds mu.
func (c *Conn) restoreReadDeadline() { _ = c.Conn.SetReadDeadline(c.real.get().time()) }
