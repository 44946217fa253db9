package httpadapter

import "sync/atomic"

// Stats counts the fates of a [Server]'s connections. The counters are read one
// after the other, not in one instant.
type Stats struct {
	Conns   int // connections open now that are the adapter's: of type *percore.Conn, not hijacked, not HTTP/2
	Waiting int // of these, waiting for their first byte, without a goroutine
	Parked  int // of these, parked between two requests, without a goroutine

	Parks   uint64 // times a connection was parked
	Unparks uint64 // times a parked connection was handed to net/http again

	HandedOver uint64 // connections that another process has taken over: see HandOver
	Adopted    uint64 // connections that have come from another process, where they had requests

	// Not parked, because it can't be done or not safely.

	Foreign  uint64 // connections of another type than *percore.Conn
	HTTP2    uint64 // connections that speak HTTP/2, or another protocol that ALPN chose
	Hijacked uint64 // connections that were hijacked
	Buffered uint64 // waits for a request of which net/http had some bytes already

	// Unsafe says that net/http keeps the connections that it gets in this process, or those over TLS:
	// it does not wait for requests, or crypto/tls does not read, in a way that parking relies on. The
	// http.Server's ErrorLog has a line that names the difference. The fast path, and connections
	// that wait for their first byte, need nothing of net/http; over TLS they need crypto/tls.
	Unsafe bool
}

// FastPathStats counts the requests of [FastPath], and the connections on which it waits for them.
type FastPathStats struct {
	Requests uint64 // that it has served
	Serving  int    // connections on which a request is read or served now, or about to be

	// HandedOver counts the requests that it has left to net/http, by the reason: "ended", because
	// the stream ended in the middle of a header, or the part of the header that it does not take:
	// "host", "upgrade", "expect" and others. Reasons that did not occur are missing.
	HandedOver map[string]uint64
}

// counters are Stats as they are counted.
type counters struct {
	conns, waiting, parked   atomic.Int64
	serving                  atomic.Int64
	parks, unparks           atomic.Uint64
	departed, adopted        atomic.Uint64
	foreign, http2, hijacked atomic.Uint64
	buffered                 atomic.Uint64
	unsafe                   atomic.Bool

	requests   atomic.Uint64 // that the fast path has served
	handedOver [reasonCount]atomic.Uint64
}

// gauge counts a connection that comes into a state, or leaves it.
func (n *counters) gauge(s state, by int64) {
	switch s {
	case stateFresh:
		n.waiting.Add(by)
	case stateParked, stateLeaving, stateClosing:
		n.parked.Add(by)
	case stateServing, stateNotified:
		n.serving.Add(by)
	case stateHTTP2, stateHijacked, stateClosed:
		n.conns.Add(-by)
	}
}

// Stats returns the counters. On anything but Linux connections are not parked,
// and only Foreign counts.
func (s *Server) Stats() Stats {
	return s.stats.read()
}

func (n *counters) read() Stats {
	return Stats{
		Conns:   int(n.conns.Load()),
		Waiting: int(n.waiting.Load()),
		Parked:  int(n.parked.Load()),
		Parks:   n.parks.Load(),
		Unparks: n.unparks.Load(),

		HandedOver: n.departed.Load(),
		Adopted:    n.adopted.Load(),

		Foreign:  n.foreign.Load(),
		HTTP2:    n.http2.Load(),
		Hijacked: n.hijacked.Load(),
		Buffered: n.buffered.Load(),
		Unsafe:   n.unsafe.Load(),
	}
}

// FastPathStats returns the counters of the fast path.
func (s *Server) FastPathStats() FastPathStats {
	n := s.stats
	stats := FastPathStats{Requests: n.requests.Load(), Serving: int(n.serving.Load()), HandedOver: make(map[string]uint64)}
	for r := range n.handedOver {
		if count := n.handedOver[r].Load(); count > 0 {
			stats.HandedOver[reason(r).String()] = count
		}
	}
	return stats
}
