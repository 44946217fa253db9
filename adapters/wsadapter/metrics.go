package wsadapter

import (
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/wsadapter/internal/link"
)

func init() { percore.RegisterAdapter("websocket", readMetrics) }

// counters count for the whole process.
var counters struct {
	sessions, waiting, kept atomic.Int64 // now: see Stats
	started, woken          atomic.Uint64
}

// Stats counts the conversations of the process. The counts are read one after the other.
type Stats struct {
	Sessions int // begun and not ended
	Waiting  int // of these, waiting for the peer without a goroutine
	Kept     int // of these, waiting for the next message with a goroutine: see the package's comment

	// The others handle a message, or have handled one within the last tenth of a second.
}

// ReadStats returns the present counts. It is cheap.
func ReadStats() Stats {
	return Stats{
		Sessions: int(counters.sessions.Load()),
		Waiting:  int(counters.waiting.Load()),
		Kept:     int(counters.kept.Load()),
	}
}

// readMetrics returns the process's metrics.
func readMetrics() []percore.Metric {
	const help = "Conversations by what they do: wait for the peer without a goroutine (waiting) or with one (kept), or handle a message or have just done so (handling)"
	s := ReadStats()
	handling := max(0, s.Sessions-s.Waiting-s.Kept) // the counts are read one after the other
	return append([]percore.Metric{
		{Name: "sessions", Help: help, Label: "state", Of: "waiting", Value: float64(s.Waiting)},
		{Name: "sessions", Help: help, Label: "state", Of: "kept", Value: float64(s.Kept)},
		{Name: "sessions", Help: help, Label: "state", Of: "handling", Value: float64(handling)},
		{Name: "started_sessions_total", Help: "Conversations that were started", Value: float64(counters.started.Load())},
		{Name: "wakeups_total", Help: "Times that a conversation that waited was given a goroutine", Value: float64(counters.woken.Load())},
	}, link.MovingMetrics()...)
}
