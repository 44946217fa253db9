package httpadapter

import "github.com/percore/percore/adapters/httpadapter/internal/http1"

// counter is one of the numbers that are counted of connections.
type counter uint8

const (
	// Connections that are open now, by what they do, and all of them.
	countWaiting counter = iota
	countParked
	countServing
	countConns
	countDetached // answers

	countAdopted
	countHandedOver
	countHijacked
	countRequests
	countOdd // of these and of refused ones those that are not plain, from here by the reason

	connCounters = countOdd + counter(reasonCount)
)

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
	}
}

// reason is why a request is odd: a verdict about its header, or one of these.
type reason uint8

const (
	reasonEnded  = reason(http1.Verdicts) + iota // the stream ended, or failed, in the middle of a request
	reasonTarget                                 // a target that is none for package url

	reasonCount = iota + int(http1.Verdicts)
)

func reasonOf(v http1.Verdict) reason { return reason(v) }

func (r reason) String() string {
	switch r {
	case reasonEnded:
		return "ended"
	case reasonTarget:
		return "target"
	}
	return http1.Verdict(r).String()
}

// isNone reports whether r is no reason: a header is plain, or not whole yet.
func (r reason) isNone() bool { return r == reasonOf(http1.Plain) || r == reasonOf(http1.Incomplete) }
