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
	underWay atomic.Int64 // calls of Give, and Successors between Take and the end of Ready or Close

	gave, gaveFailed, gaveOvertaken atomic.Uint64 // calls of Give, by their result
	took, tookOrphaned, tookFailed  atomic.Uint64 // the other side, by its result

	last atomic.Int64 // nanoseconds that the last one took, whatever its result was
}

// countGive counts a call of Give that has begun. The caller calls the result with its error.
func countGive() (ended func(error)) {
	return count(ErrOvertaken, &counters.gave, &counters.gaveOvertaken, &counters.gaveFailed)
}

// countTake is countGive for the other side, from Take to Ready's error.
func countTake() (ended func(error)) {
	return count(ErrGone, &counters.took, &counters.tookOrphaned, &counters.tookFailed)
}

// count counts a handover that has begun, and by the result's argument whether it was good, ended with
// the special error, or failed.
func count(special error, good, specials, failed *atomic.Uint64) (ended func(error)) {
	counters.underWay.Add(1)
	begin := time.Now()
	return func(err error) {
		counters.last.Store(int64(time.Since(begin)))
		counters.underWay.Add(-1)
		switch {
		case err == nil:
			good.Add(1)
		case errors.Is(err, special):
			specials.Add(1)
		default:
			failed.Add(1)
		}
	}
}

// readMetrics returns the process's metrics.
func readMetrics() []percore.Metric {
	const gave = "Handovers that this process has begun to give, by result: moved, failed (it serves on), overtaken (another had succeeded)"
	const took = "Handovers in which this process was to take over, by result: moved, orphaned (the predecessor ended in the middle), failed"
	row := func(name, help, result string, n *atomic.Uint64) percore.Metric {
		return percore.Metric{Name: name, Help: help, Label: "result", Of: result, Value: float64(n.Load())}
	}
	return []percore.Metric{
		{Name: "under_way", Help: "Handovers under way, on either side", Value: float64(counters.underWay.Load())},
		row("given_total", gave, "moved", &counters.gave),
		row("given_total", gave, "failed", &counters.gaveFailed),
		row("given_total", gave, "overtaken", &counters.gaveOvertaken),
		row("taken_total", took, "moved", &counters.took),
		row("taken_total", took, "orphaned", &counters.tookOrphaned),
		row("taken_total", took, "failed", &counters.tookFailed),
		{Name: "last_duration_seconds", Help: "The time that the last one took, with the start of the successor",
			Value: time.Duration(counters.last.Load()).Seconds()},
	}
}
