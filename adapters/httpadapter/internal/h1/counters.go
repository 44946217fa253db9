package h1

import (
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/loop"
)

// Counter is a count of connections, requests or answers.
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

// The counters of events.
const (
	CountAdopted    = CountDetached + 1 + iota // connections that another process has served before
	CountHandedOver                            // connections that another process has taken over
	CountHijacked                              // connections
	CountRequests                              // that were served
	CountOdd                                   // served or refused, and not plain, from here on by the reason

	Counters = CountOdd + Counter(http1.Verdicts) // how many there are
)

// stalls are the answers of the process that wait for their client to read.
var stalls = loop.NewStalls()

// slowTime is how long an answer may wait for its client before it counts as slow.
const slowTime = time.Second

// Stalled returns how many answers of the process wait for their client to read, and how many are slow.
func Stalled() (all, slow int) { return stalls.Count(slowTime) }

// OddReason returns why the requests of a counter from CountOdd on are odd, or false if they are not:
// the header is plain, or not complete yet.
func (c Counter) OddReason() (string, bool) {
	v := http1.Verdict(c - CountOdd)
	return v.String(), v != http1.Plain && v != http1.Incomplete
}
