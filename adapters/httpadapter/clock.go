package httpadapter

import "time"

// instant is a deadline: nanoseconds since epoch, on the monotonic clock. 0 is
// none.
type instant int64

// epoch is a second before the process started, so that no instant is 0 by
// chance.
var epoch = time.Now().Add(-time.Second)

func now() instant { return instant(time.Since(epoch)) }

// instantOf translates a time as package net does: one without a monotonic
// reading is compared by the wall clock as it is now.
func instantOf(t time.Time) instant {
	switch {
	case t.IsZero():
		return 0
	case t == t.Round(0): // which strips the reading
		return max(now()+instant(time.Until(t)), 1)
	}
	return max(instant(t.Sub(epoch)), 1)
}

func (at instant) time() time.Time {
	if at == 0 {
		return time.Time{}
	}
	return epoch.Add(time.Duration(at))
}

// passed reports whether the deadline is over.
func (at instant) passed() bool { return at != 0 && at <= now() }

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
		return now() + instant(limit)
	}
	return 0
}

// firstByteTimeout returns how long a connection may take for its first byte, or
// 0: over TLS what net/http gives to the handshake, else to the header.
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
