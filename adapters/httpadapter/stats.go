package httpadapter

import (
	"slices"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// Stats counts what becomes of a [Server]'s connections. The counters are read one
// after the other, not in one instant.
type Stats struct {
	Conns   int // connections open now that are the adapter's: of type *percore.Conn, not hijacked, not HTTP/2
	Waiting int // of these, waiting for their first byte, without a goroutine
	Parked  int // of these, parked between two requests, without a goroutine

	Parks   uint64 // times a connection was parked
	Unparks uint64 // times a parked connection was given to net/http again

	HandedOver uint64 // connections that another process has taken over: see HandOver
	Adopted    uint64 // connections that have come from another process, where they had requests

	// Detached answers whose handler has returned, and that wait or are being sent, without a goroutine
	// while they wait; over HTTP/2, too. The connections of the others are in Conns.
	Detached int

	// Not parked, because it can't be done or not safely.

	Foreign  uint64 // connections of another type than *percore.Conn
	HTTP2    uint64 // connections that speak HTTP/2, also past net/http, or another protocol that ALPN chose
	Hijacked uint64 // connections that were hijacked
	Buffered uint64 // waits for a request of which net/http had some bytes already

	// Unsafe says that net/http keeps the connections that it gets in this process, or those over TLS:
	// it does not wait for requests, or crypto/tls does not read, in a way that parking relies on. The
	// http.Server's ErrorLog has a line that names the difference. The fast path, and connections
	// that wait for their first byte, need nothing of net/http; over TLS they need crypto/tls.
	Unsafe bool
}

// FastPathStats counts the plain requests that the Server serves without net/http, and the connections
// on which it waits for them.
type FastPathStats struct {
	Requests uint64 // that it has served
	Serving  int    // connections on which a request is read or served now, or about to be

	// Declined counts the requests that it has left to net/http, by the reason: "ended", because
	// the stream ended in the middle of a header, or the part of the header that it does not take:
	// "host", "upgrade", "expect" and others. Reasons that did not occur are missing.
	Declined map[string]uint64
}

// counter is one of the numbers that a Server counts. Each is declared here and in metrics, and Stats or
// FastPathStats has it.
type counter uint8

const (
	// Connections that are open now, by what they do, and all of them.
	countWaiting counter = iota
	countParked
	countServing
	countConns
	countDetached // answers

	countParks
	countUnparks
	countHandedOver
	countAdopted
	countBuffered
	countForeign
	countHTTP2
	countHijacked
	countRequests // that the fast path has served
	countDeclined // and those that it has declined, from here by the reason

	countUnsafe  = countDeclined + counter(reasonCount) // Servers with connections that can't be parked: see Stats.Unsafe
	counterCount = countUnsafe + 1
)

// metrics are the counters up to countDeclined as metrics of the process.
var metrics = [countDeclined]percore.Metric{
	countWaiting:    connsMetric("waiting"),
	countParked:     connsMetric("parked"),
	countServing:    connsMetric("fastpath"),
	countConns:      connsMetric("nethttp"), // without the others: see metrics
	countDetached:   {Name: "detached_answers", Help: "Answers that go on after their handler has returned"},
	countParks:      {Name: "parks_total", Help: "Times that a connection of net/http was parked"},
	countUnparks:    {Name: "unparks_total", Help: "Times that a parked connection was given to net/http again"},
	countHandedOver: {Name: "handed_over_connections_total", Help: "Connections that another process has taken over"},
	countAdopted:    {Name: "adopted_connections_total", Help: "Connections that have come from another process, where they had requests"},
	countBuffered:   {Name: "buffered_waits_total", Help: "Waits for a request that could not be parked, since a part of it was there"},
	countForeign:    {Name: "foreign_connections_total", Help: "Connections that can't be parked because they are no *percore.Conn"},
	countHTTP2:      {Name: "http2_connections_total", Help: "Connections that speak HTTP/2, or another protocol that ALPN chose; httpadapter's own HTTP/2 waits without a goroutine"},
	countHijacked:   {Name: "hijacked_connections_total", Help: "Connections that handlers have hijacked"},
	countRequests:   {Name: "fastpath_requests_total", Help: "Requests that the fast path has served"},
}

func connsMetric(state string) percore.Metric {
	return percore.Metric{
		Name: "connections", Label: "state", Of: state,
		Help: "Open connections that can be parked, by what they do: wait for their first byte, are parked, " +
			"are served by the fast path, are with net/http",
	}
}

// gauge counts a connection that comes into a state, or leaves it.
func (q *connQueue) gauge(of connState, by int64) {
	switch of.state() {
	case stateFresh:
		q.counts.Add(countWaiting, by)
	case stateParked, stateTakenOut, stateClosing:
		q.counts.Add(countParked, by)
	case stateServing, stateNotified:
		q.counts.Add(countServing, by)
	case stateHijacked, stateClosed:
		q.counts.Add(countConns, -by)
	case stateLeased:
		if of.phase() == phaseHTTP2 {
			q.counts.Add(countConns, -by)
		}
	}
}

// sums are the counters of one Server, or the sums of several.
type sums []int64

// Stats returns the counters. On anything but Linux connections are not parked,
// and only Foreign counts.
func (s *Server) Stats() Stats {
	t := sums(s.counters.Sums())
	count := func(c counter) uint64 { return uint64(t[c]) }
	return Stats{
		Conns:   int(t[countConns]),
		Waiting: int(t[countWaiting]),
		Parked:  int(t[countParked]),

		Detached: int(t[countDetached]),

		Parks:      count(countParks),
		Unparks:    count(countUnparks),
		HandedOver: count(countHandedOver),
		Adopted:    count(countAdopted),
		Foreign:    count(countForeign),
		HTTP2:      count(countHTTP2),
		Hijacked:   count(countHijacked),
		Buffered:   count(countBuffered),
		Unsafe:     t[countUnsafe] > 0,
	}
}

// HTTP2Stats returns the metrics of the HTTP/2 connections that the Server serves without net/http.
// Each of them counts in HTTP2 of [Stats], too.
func (s *Server) HTTP2Stats() h2.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.mu.streamsGone
	for _, streams := range s.mu.streams {
		stats.Add(streams.Stats())
	}
	return stats
}

// keepStreamsLocked adds the server of a call's HTTP/2 connections to those that HTTP2Stats counts. It
// drops those of earlier calls that have nothing left to count. The Server's mu is held.
func (s *Server) keepStreamsLocked(streams *h2.Server) {
	s.mu.streams = slices.DeleteFunc(s.mu.streams, func(old *h2.Server) bool {
		for call := range s.mu.calls {
			if call.streams == old {
				return false
			}
		}
		stats := old.Stats()
		over := stats.Conns == 0 && stats.Streams == 0
		if over {
			s.mu.streamsGone.Add(stats)
		}
		return over
	})
	s.mu.streams = append(s.mu.streams, streams)
}

// FastPathStats returns the counters of the fast path.
func (s *Server) FastPathStats() FastPathStats {
	t := sums(s.counters.Sums())
	stats := FastPathStats{
		Requests: uint64(t[countRequests]),
		Serving:  int(t[countServing]),
		Declined: make(map[string]uint64),
	}
	for r, n := range t[countDeclined:countUnsafe] {
		if n > 0 {
			stats.Declined[reason(r).String()] = uint64(n)
		}
	}
	return stats
}

// metrics returns the sums as metrics of the process.
func (t sums) metrics() []percore.Metric {
	// Of the connections those that net/http has. The counters were read one after the other.
	t[countConns] = max(t[countConns]-t[countWaiting]-t[countParked]-t[countServing], 0)
	var all []percore.Metric
	for c, f := range metrics {
		f.Value = float64(t[c])
		all = append(all, f)
	}
	unsafe := percore.Metric{
		Name: "parking_unsafe",
		Help: "1 if nothing is parked because this net/http does not wait for requests as parking relies on",
	}
	if t[countUnsafe] > 0 {
		unsafe.Value = 1
	}
	all = append(all, unsafe)
	for r := range reason(reasonCount) {
		if r == reasonOf(http1.Plain) || r == reasonOf(http1.Incomplete) {
			continue // no reasons
		}
		all = append(all, percore.Metric{
			Name: "fastpath_declined_total", Help: "Requests that the fast path has left to net/http, by the part of the header that it doesn't take",
			Label: "reason", Of: r.String(), Value: float64(t[countDeclined+counter(r)]),
		})
	}
	return all
}
