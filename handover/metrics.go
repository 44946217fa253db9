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

	gave, gaveFailed               atomic.Uint64 // calls of give, by their result
	took, tookOrphaned, tookFailed atomic.Uint64 // the other side, by its result

	last atomic.Int64 // nanoseconds that the last one took, whatever its result was
}

// countGive counts a call of give that has begun. The caller calls the result with its error.
func countGive() (ended func(error)) {
	return count(&counters.gave, &counters.gaveFailed, &counters.gaveFailed)
}

// countTake is countGive for the other side, from take to the error of ready or giveUp.
func countTake() (ended func(error)) {
	return count(&counters.took, &counters.tookOrphaned, &counters.tookFailed)
}

// count counts a handover that has begun, and its result.
func count(moved, orphaned, failed *atomic.Uint64) (ended func(error)) {
	counters.underWay.Add(1)
	begin := time.Now()
	return func(err error) {
		counters.last.Store(int64(time.Since(begin)))
		counters.underWay.Add(-1)
		switch {
		case err == nil:
			moved.Add(1)
		case errors.Is(err, errGone):
			orphaned.Add(1)
		default:
			failed.Add(1)
		}
	}
}

// readMetrics returns the process's metrics.
func readMetrics() []percore.Metric {
	const gave = "Handovers that this process has begun to give, by result: moved, failed (it serves on)"
	const took = "Handovers in which this process was to take over, by result: moved, orphaned (the predecessor ended in the middle), failed"
	row := func(name, help, result string, n *atomic.Uint64) percore.Metric {
		return percore.Metric{Name: name, Help: help, Label: "result", Of: result, Value: float64(n.Load())}
	}
	return []percore.Metric{
		{Name: "under_way", Help: "Handovers under way, on either side", Value: float64(counters.underWay.Load())},
		row("given_total", gave, "moved", &counters.gave),
		row("given_total", gave, "failed", &counters.gaveFailed),
		row("taken_total", took, "moved", &counters.took),
		row("taken_total", took, "orphaned", &counters.tookOrphaned),
		row("taken_total", took, "failed", &counters.tookFailed),
		{Name: "last_duration_seconds", Help: "The time that the last one took, with the start of the successor",
			Value: time.Duration(counters.last.Load()).Seconds()},
	}
}
