package moving

import (
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
)

func init() { link.MovingMetrics = readMetrics }

// counters count for the whole process.
var counters struct {
	moved, restored                    atomic.Uint64
	stayed                             [reasons]atomic.Uint64
	lostAnswer, lostRestorer, lostTime atomic.Uint64
}

// Stats counts the conversations that have moved since the process began, or should have.
type Stats struct {
	Moved    uint64 // a successor has them
	Stayed   uint64 // they did not move when others did; the metrics have the reasons
	Restored uint64 // they came from a predecessor and go on
	Lost     uint64 // they came but could not go on: their peers were told to connect again
}

// ReadStats returns the present counts, which it reads one after the other. It is cheap.
func ReadStats() Stats {
	s := Stats{
		Moved:    counters.moved.Load(),
		Restored: counters.restored.Load(),
		Lost:     counters.lostAnswer.Load() + counters.lostRestorer.Load() + counters.lostTime.Load(),
	}
	for i := range counters.stayed {
		s.Stayed += counters.stayed[i].Load()
	}
	return s
}

// readMetrics returns the process's metrics.
func readMetrics() []percore.Metric {
	metrics := []percore.Metric{
		{Name: "moved_sessions_total", Help: "Conversations that a successor process has", Value: float64(counters.moved.Load())},
		{Name: "restored_sessions_total", Help: "Conversations that came from a predecessor process and go on", Value: float64(counters.restored.Load())},
	}
	for i := stays + 1; i < reasons; i++ {
		metrics = append(metrics, percore.Metric{
			Name: "stayed_sessions_total",
			Help: "Conversations that did not move to a successor when others did, by reason: no Save (no_save), TLS, " +
				"a connection that isn't armed or is of another listener (connection), a header over 16 KiB (request), " +
				"the library's answer (answer), an extension, Save refused (save), over 32 KiB of state (state), " +
				"no moment between two messages (busy)",
			Label: "reason", Of: reasonNames[i], Value: float64(counters.stayed[i].Load()),
		})
	}
	lost := func(reason string, n *atomic.Uint64) percore.Metric {
		return percore.Metric{
			Name: "lost_sessions_total", Help: "Conversations from a predecessor that were told to connect again, by reason: " +
				"another answer of the library (answer), the Restorer (restorer), its time (time)",
			Label: "reason", Of: reason, Value: float64(n.Load()),
		}
	}
	return append(metrics, lost("answer", &counters.lostAnswer), lost("restorer", &counters.lostRestorer), lost("time", &counters.lostTime))
}
