package wsadapter

import (
	"sync/atomic"

	"github.com/percore/percore"
)

func init() { percore.RegisterAdapter("websocket", readMetrics) }

// counters count for the whole process.
var counters struct {
	sessions, waiting, kept atomic.Int64 // now: see Stats
	started, woken          atomic.Uint64

	moved, restored                    atomic.Uint64 // between processes
	stayed                             [reasons]atomic.Uint64
	lostAnswer, lostRestorer, lostTime atomic.Uint64
}

// Stats counts the conversations of the process. The counts are read one after the other.
type Stats struct {
	Sessions int // begun and not ended
	Waiting  int // of these, waiting for the peer without a goroutine
	Kept     int // of these, waiting for the next message with a goroutine: see the package's comment

	// The others handle a message, or have handled one within the last tenth of a second.

	// Of Groups, since the process began:
	Moved    uint64 // conversations that a successor has
	Stayed   uint64 // conversations that did not move when others did; the metrics have the reasons
	Restored uint64 // conversations that came from a predecessor and go on
	Lost     uint64 // conversations that came but could not go on: their peers were told to connect again
}

// ReadStats returns the present counts. It is cheap.
func ReadStats() Stats {
	s := Stats{
		Sessions: int(counters.sessions.Load()),
		Waiting:  int(counters.waiting.Load()),
		Kept:     int(counters.kept.Load()),
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
	const help = "Conversations by what they do: wait for the peer without a goroutine (waiting) or with one (kept), or handle a message or have just done so (handling)"
	s := ReadStats()
	handling := max(0, s.Sessions-s.Waiting-s.Kept) // the counts are read one after the other
	metrics := []percore.Metric{
		{Name: "sessions", Help: help, Label: "state", Of: "waiting", Value: float64(s.Waiting)},
		{Name: "sessions", Help: help, Label: "state", Of: "kept", Value: float64(s.Kept)},
		{Name: "sessions", Help: help, Label: "state", Of: "handling", Value: float64(handling)},
		{Name: "started_sessions_total", Help: "Conversations that were started", Value: float64(counters.started.Load())},
		{Name: "wakeups_total", Help: "Times that a conversation that waited was given a goroutine", Value: float64(counters.woken.Load())},
		{Name: "moved_sessions_total", Help: "Conversations that a successor process has", Value: float64(s.Moved)},
		{Name: "restored_sessions_total", Help: "Conversations that came from a predecessor process and go on", Value: float64(s.Restored)},
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
