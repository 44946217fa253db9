package httpadapter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

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

// passed reports whether the deadline is over.
func (at instant) passed() bool { return at != 0 && int64(at) <= monotime.Now() }

// atomicInstant is an instant that several goroutines use.
type atomicInstant struct{ v atomic.Int64 }

func (a *atomicInstant) get() instant { return instant(a.v.Load()) }

// set costs less if the deadline is the same already: most connections never have a deadline.
func (a *atomicInstant) set(at instant) {
	if a.get() != at {
		a.v.Store(int64(at))
	}
}

// headerTimeout returns how long a header may take, or 0.
func (s *Server) headerTimeout() time.Duration {
	if s.srv.ReadHeaderTimeout != 0 {
		return max(s.srv.ReadHeaderTimeout, 0)
	}
	return max(s.srv.ReadTimeout, 0)
}

// headerDeadline returns the deadline for a header that begins now.
func (s *Server) headerDeadline() instant {
	if limit := s.headerTimeout(); limit > 0 {
		return instant(monotime.After(limit))
	}
	return 0
}

// requestDeadline returns the deadline for all of a request, which net/http believes to
// be t, from the one for its header. Both begin when the request does.
func (s *Server) requestDeadline(t time.Time, header instant) time.Time {
	if s.headerTimeout() == 0 || s.srv.ReadTimeout <= 0 || t.IsZero() || header == 0 || header == math.MaxInt64 {
		return t
	}
	return header.time().Add(s.srv.ReadTimeout - s.headerTimeout())
}

// firstByteTimeout returns how long a connection may take for its first byte, or
// 0: over TLS net/http's limit of the handshake, else of the header.
func (s *Server) firstByteTimeout(overTLS bool) time.Duration {
	if !overTLS {
		return s.headerTimeout()
	}
	least := time.Duration(0)
	for _, d := range []time.Duration{s.srv.ReadHeaderTimeout, s.srv.ReadTimeout, s.srv.WriteTimeout} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}
