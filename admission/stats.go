package admission

import (
	"github.com/percore/percore"
	"github.com/percore/percore/internal/shared/counters"
)

// Stats has the counters of a [Limiter].
type Stats struct {
	Running int    // places that are taken
	Waiting int    // requests that wait for a place
	Waited  uint64 // requests that got a place after waiting
	Refused uint64 // requests that got no place: too many waited, or they waited for too long
}

// counter is one of the numbers that a Limiter counts.
type counter uint8

const (
	countRunning counter = iota
	countWaiting
	countWaited
	countRefused
	counterCount
)

// limiters has the counters of the process's Limiters.
var limiters = counters.NewRegister(counterCount)

func init() {
	percore.RegisterAdapter("admission", func() []percore.Metric {
		t := limiters.Sums()
		return []percore.Metric{
			{Name: "running_handlers", Help: "Places of Limiters that are taken", Value: float64(t[countRunning])},
			{Name: "waiting_requests", Help: "Requests that wait for a place", Value: float64(t[countWaiting])},
			{Name: "waited_requests_total", Help: "Requests that have waited for a place, and got it", Value: float64(t[countWaited])},
			{Name: "refused_requests_total", Help: "Requests that have got no place: too many waited, or for too long", Value: float64(t[countRefused])},
		}
	})
}

// Stats returns the counters.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.counters.Sums()
	return Stats{
		Running: int(t[countRunning]), Waiting: int(t[countWaiting]),
		Waited: uint64(t[countWaited]), Refused: uint64(t[countRefused]),
	}
}
