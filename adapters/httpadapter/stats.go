package httpadapter

import (
	"slices"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/shared/counters"
)

// Stats counts what happens to a [Server]'s connections and requests. The counters are read one after
// the other, not at one instant.
type Stats struct {
	Conns   int // connections open now that the Server serves itself: of type *percore.Conn, not hijacked, not HTTP/2
	Waiting int // of these, waiting for their first byte, without a goroutine
	Parked  int // of these, waiting between two requests, without a goroutine

	HandedOver uint64 // connections that another process has taken over: see HandOver
	Adopted    uint64 // connections that have come from another process, where they had requests

	// Detached is how many answers wait or are being sent after their handler has returned, over HTTP/1
	// and HTTP/2. They hold no goroutine while they wait. Over HTTP/1 their connections count in Conns.
	Detached int

	Foreign  uint64 // connections of another type than *percore.Conn, which net/http serves
	HTTP2    uint64 // connections that speak HTTP/2, or another protocol that ALPN chose
	Hijacked uint64 // connections that were hijacked

	Requests uint64 // over HTTP/1, that the Server has served itself
	Serving  int    // connections of HTTP/1 on which a request is read or served now, or about to be

	// Odd counts the HTTP/1 requests that are not plain. They cost more CPU time, because net/http's
	// parser reads them. The key is the first part of the header that is not plain: "coding" for a body
	// in chunks, "version", "expect", "upgrade" and others; "ended" if the stream ended in the middle of
	// a header. Refused requests are included. Reasons that did not occur are missing.
	Odd map[string]uint64

	// Unsafe says that net/http serves TLS in this process, because crypto/tls does not read in a way
	// that percore relies on. The http.Server's ErrorLog has a line that names the difference.
	Unsafe bool
}

// The counters of connections that h1 doesn't count. Each is also in metrics and in Stats.
const (
	countForeign = h1.Counters + iota
	countHTTP2
	countUnsafe // Servers whose TLS net/http serves: see Stats.Unsafe
	counterCount
)

// metrics are most of the counters as metrics: readMetrics has the others.
var metrics = []struct {
	h1.Counter
	percore.Metric
}{
	{h1.CountWaiting, connsMetric("waiting")},
	{h1.CountParked, connsMetric("parked")},
	{h1.CountServing, connsMetric("serving")},
	{h1.CountConns, connsMetric("handshake")}, // without the others: see readMetrics
	{h1.CountDetached, percore.Metric{Name: "detached_answers", Help: "Answers that go on after their handler has returned"}},
	{h1.CountHandedOver, percore.Metric{Name: "handed_over_connections_total", Help: "Connections that another process has taken over"}},
	{h1.CountAdopted, percore.Metric{Name: "adopted_connections_total", Help: "Connections that have come from another process, where they had requests"}},
	{countForeign, percore.Metric{Name: "foreign_connections_total", Help: "Connections that net/http serves because they are no *percore.Conn"}},
	{countHTTP2, percore.Metric{Name: "http2_connections_total", Help: "Connections that speak HTTP/2, or another protocol that ALPN chose"}},
	{h1.CountHijacked, percore.Metric{Name: "hijacked_connections_total", Help: "Connections that handlers have hijacked"}},
	{h1.CountRequests, percore.Metric{Name: "http1_requests_total", Help: "Requests over HTTP/1"}},
}

func connsMetric(state string) percore.Metric {
	return percore.Metric{
		Name: "connections", Label: "state", Of: state,
		Help: "Open connections by what they do: wait for their first byte, wait between two requests (parked), " +
			"are served, are shaking hands over TLS",
	}
}

func init() { percore.RegisterAdapter("http", readMetrics) }

// servers has the counters of all Servers of the process.
var servers = counters.NewRegister(counterCount)

// Stats returns the counters. On anything but Linux only Foreign counts.
func (s *Server) Stats() Stats {
	t := s.counters.Sums()
	count := func(c h1.Counter) uint64 { return uint64(t[c]) }
	stats := Stats{
		Conns:   int(t[h1.CountConns]),
		Waiting: int(t[h1.CountWaiting]),
		Parked:  int(t[h1.CountParked]),

		Detached: int(t[h1.CountDetached]),

		HandedOver: count(h1.CountHandedOver),
		Adopted:    count(h1.CountAdopted),
		Foreign:    count(countForeign),
		HTTP2:      count(countHTTP2),
		Hijacked:   count(h1.CountHijacked),
		Requests:   count(h1.CountRequests),
		Serving:    int(t[h1.CountServing]),
		Odd:        make(map[string]uint64),
		Unsafe:     t[countUnsafe] > 0,
	}
	for c := h1.CountOdd; c < h1.Counters; c++ {
		if reason, _ := c.OddReason(); t[c] > 0 {
			stats.Odd[reason] = uint64(t[c])
		}
	}
	return stats
}

// HTTP2Stats returns the metrics of the HTTP/2 connections that the Server serves without net/http.
// Each of them also counts in HTTP2 of [Stats].
func (s *Server) HTTP2Stats() h2.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := s.mu.streamsGone
	for _, streams := range s.mu.streams {
		stats.Add(streams.Stats())
	}
	return stats
}

// keepStreamsLocked makes HTTP2Stats count the server of a call's HTTP/2 connections. It drops those of
// earlier calls that have nothing left to count. The Server's mu is held.
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

// readMetrics returns the sums over all Servers of the process.
func readMetrics() []percore.Metric {
	t := servers.Sums()
	// Connections that do nothing else are in a handshake. The counters were not read at one instant.
	t[h1.CountConns] = max(t[h1.CountConns]-t[h1.CountWaiting]-t[h1.CountParked]-t[h1.CountServing], 0)
	var all []percore.Metric
	for _, m := range metrics {
		m.Value = float64(t[m.Counter])
		all = append(all, m.Metric)
	}
	unsafe := percore.Metric{
		Name: "tls_unsafe",
		Help: "1 if net/http serves TLS because this crypto/tls does not read in a way that percore relies on",
	}
	if t[countUnsafe] > 0 {
		unsafe.Value = 1
	}
	all = append(all, unsafe)
	stalled, slow := h1.Stalled()
	all = append(all,
		percore.Metric{Name: "stalled_answers", Help: "HTTP/1 answers that wait for the client to read", Value: float64(stalled)},
		percore.Metric{Name: "slow_answers", Help: "HTTP/1 answers that have waited for the client to read for a second or longer", Value: float64(slow)})
	for c := h1.CountOdd; c < h1.Counters; c++ {
		if reason, ok := c.OddReason(); ok {
			all = append(all, percore.Metric{
				Name: "http1_odd_requests_total", Help: "Requests that are not plain, which cost more CPU time, by the first part of the header that is not",
				Label: "reason", Of: reason, Value: float64(t[c]),
			})
		}
	}
	return all
}
