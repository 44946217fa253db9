package h1

import (
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/loop"
)

// Counter is one of the numbers that are counted of connections.
type Counter uint8

// The counters of connections that are open now, by what they do, of all of them, and of detached
// answers.
const (
	CountWaiting  Counter = iota // for the first byte
	CountParked                  // between two requests
	CountServing                 // a worker has them
	CountConns                   // all, until they are hijacked
	CountDetached                // answers
)

// The counters of what has happened.
const (
	CountAdopted    = CountDetached + 1 + iota // connections that another process has served before
	CountHandedOver                            // connections that another process has taken over
	CountHijacked                              // connections
	CountRequests                              // that were served
	CountOdd                                   // of these and of refused ones those that are not plain, from here by the reason

	Counters = CountOdd + Counter(reasonCount) // how many there are
)

// gauge counts a connection that comes into a state, or leaves it.
func (q *Queue) gauge(of connState, by int64) {
	switch of.state() {
	case stateFresh:
		q.counts.Add(CountWaiting, by)
	case stateParked, stateTakenOut, stateClosing:
		q.counts.Add(CountParked, by)
	case stateServing, stateNotified:
		q.counts.Add(CountServing, by)
	case stateHijacked, stateClosed:
		q.counts.Add(CountConns, -by)
	}
}

// stalls are the answers of the process that wait for their client to read.
var stalls = loop.NewStalls()

// slowTime is from when on an answer that waits for its client is slow.
const slowTime = time.Second

// Stalled returns how many answers of the process wait for their client to read, and how many of these
// are slow.
func Stalled() (all, slow int) { return stalls.Count(slowTime) }

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

// OddReason returns the reason that a counter from CountOdd on counts, or false for those that are none:
// a header is plain, or not whole yet.
func (c Counter) OddReason() (string, bool) {
	r := reason(c - CountOdd)
	return r.String(), r != reasonOf(http1.Plain) && r != reasonOf(http1.Incomplete)
}
