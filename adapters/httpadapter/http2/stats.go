package http2

import (
	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/internal/shared/counters"
)

// Stats are the counters of a Transport. They are read one after the other, not at one instant.
type Stats struct {
	Conns   int // connections that are open, without those that have switched protocols
	Idle    int // of these, waiting for a request, or over HTTP/2 without streams; the others are busy
	Dialing int // connections that are being dialed, with their TLS handshakes
	Waiting int // calls that wait for a connection

	// Unanswered is how many calls have a connection and wait for the header of their answer. Divided by
	// the number of requests that begin in a second, it is how many seconds servers take to answer, on
	// average.
	Unanswered int

	Requests uint64 // requests that it has served itself
	Reused   uint64 // times that a request was sent on a connection that had another before
	Retried  uint64 // times that a request was sent again, since its connection had just ended

	// Declined counts the requests that were left to the base, by reason: NewTransport of package
	// httpadapter explains each. Reasons that did not occur are missing.
	Declined map[string]uint64
}

// reason says why a request is left to the base.
type reason uint8

const (
	served reason = iota // it isn't
	otherScheme
	otherProtocol
	otherDialer
	otherBody
	otherRequest
	proxied
	engineOff
	reasonCount
)

var reasonNames = [reasonCount]string{
	otherScheme:   "scheme",
	otherProtocol: "protocol",
	otherDialer:   "dialer",
	otherBody:     "body",
	otherRequest:  "request",
	proxied:       "proxy",
	engineOff:     "engine",
}

// counter is a number that a Transport counts: first those of the pool, then its own.
type counter = pool.Counter

const (
	countAnswered = pool.CounterEnd + iota // requests that have ended or got a header; read before countRequests
	countRequests
	countReused
	countRetried
	countDeclined // from here by the reason
	counterCount  = countDeclined + counter(reasonCount)
)

// sums are the sums of all counters.
type sums []int64

// Stats returns the counters of the transport's connections and requests. It doesn't block.
func (t *Transport) Stats() Stats { return sums(t.counters.Sums()).stats() }

func (t sums) stats() Stats {
	s := Stats{
		Conns:   int(t[pool.Conns]),
		Idle:    min(int(t[pool.Idle]+t[pool.IdleShared]), int(t[pool.Conns])),
		Dialing: int(t[pool.Dialing]),
		Waiting: int(t[pool.Waiting]),

		Unanswered: int(t[countRequests] - t[countAnswered]),

		Requests: uint64(t[countRequests]),
		Reused:   uint64(t[countReused]),
		Retried:  uint64(t[countRetried]),
		Declined: make(map[string]uint64),
	}
	for r := served + 1; r < reasonCount; r++ {
		if n := t[countDeclined+counter(r)]; n > 0 {
			s.Declined[reasonNames[r]] = uint64(n)
		}
	}
	return s
}

// decline counts a request that is left to the base.
func (t *Transport) decline(r reason) { t.counters.Cells[0].Add(countDeclined+counter(r), 1) }

func init() { percore.RegisterAdapter("client", readMetrics) }

// transports has the counters of the process's Transports.
var transports = counters.NewRegister(counterCount)

// readMetrics returns the sums over all Transports of the process.
func readMetrics() []percore.Metric {
	n := transports.Sums()
	s := sums(n).stats()
	metrics := []percore.Metric{
		stateMetric("busy", s.Conns-s.Idle),
		stateMetric("idle", s.Idle),
		stateMetric("dialing", s.Dialing),
		{Name: "waiting_calls", Help: "Calls that wait for a connection", Value: float64(s.Waiting)},
		{Name: "unanswered_calls", Help: "Calls that have had a connection, and wait for the header of their answer", Value: float64(s.Unanswered)},
		{Name: "requests_total", Help: "Requests that httpadapter's Transports have served", Value: float64(s.Requests)},
		{Name: "reused_total", Help: "Times that a request was sent on a connection that had another before", Value: float64(s.Reused)},
		{Name: "retries_total", Help: "Times that a request was sent again, since its connection had just ended", Value: float64(s.Retried)},
	}
	for r := served + 1; r < reasonCount; r++ {
		metrics = append(metrics, percore.Metric{
			Name:  "declined_total",
			Help:  "Requests that were left to http.Transport",
			Label: "reason",
			Of:    reasonNames[r],
			Value: float64(n[countDeclined+counter(r)]),
		})
	}
	return metrics
}

func stateMetric(state string, n int) percore.Metric {
	return percore.Metric{Name: "connections", Help: "Connections of httpadapter's Transports", Label: "state", Of: state, Value: float64(n)}
}
