package handover

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
)

func init() { percore.RegisterAdapter("handover", readMetrics) }

// counters count for the whole process. A process gives once, if it succeeds, and takes once.
var counters struct {
	underWay atomic.Int64 // calls of give, and successors between take and the end of ready or giveUp
	given    results
	taken    results
	last     atomic.Int64 // nanoseconds that the last one took, whatever its result was
}

// results count the handovers on one side. For a predecessor that serves on, orphaned is a failure.
type results struct{ moved, orphaned, failed atomic.Uint64 }

// begin counts a handover that has begun. The caller calls ended with its error.
func (r *results) begin() (ended func(error)) {
	counters.underWay.Add(1)
	begin := time.Now()
	return func(err error) {
		counters.last.Store(int64(time.Since(begin)))
		counters.underWay.Add(-1)
		switch {
		case err == nil:
			r.moved.Add(1)
		case errors.Is(err, errGone):
			r.orphaned.Add(1)
		default:
			r.failed.Add(1)
		}
	}
}

func readMetrics() []percore.Metric {
	const gave = "Handovers that this process has begun to give, by result: moved, failed (it serves on)"
	const took = "Handovers in which this process was to take over, by result: moved, orphaned (the predecessor ended in the middle), failed"
	row := func(name, help, result string, n uint64) percore.Metric {
		return percore.Metric{Name: name, Help: help, Label: "result", Of: result, Value: float64(n)}
	}
	g, t := &counters.given, &counters.taken
	return []percore.Metric{
		{Name: "under_way", Help: "Handovers under way, on either side", Value: float64(counters.underWay.Load())},
		row("given_total", gave, "moved", g.moved.Load()),
		row("given_total", gave, "failed", g.failed.Load()+g.orphaned.Load()),
		row("taken_total", took, "moved", t.moved.Load()),
		row("taken_total", took, "orphaned", t.orphaned.Load()),
		row("taken_total", took, "failed", t.failed.Load()),
		{Name: "last_duration_seconds", Help: "The time that the last one took, with the start of the successor",
			Value: time.Duration(counters.last.Load()).Seconds()},
	}
}
