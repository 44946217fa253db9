package wsadapter

import (
	"io"
	"testing"

	"github.com/percore/percore"
)

// figuresNow returns the metrics that percore.ReadStats has of this package, by name and state.
func figuresNow() map[string]float64 {
	all := make(map[string]float64)
	for _, a := range percore.ReadStats().Adapters {
		if a.Adapter == "websocket" {
			for _, f := range a.Metrics {
				all[f.Name+f.Of] = f.Value
			}
		}
	}
	return all
}

// TestMetrics: the metrics follow a conversation.
func TestMetrics(t *testing.T) {
	onEachWay(t, func(t *talk) {
		before := figuresNow()
		want := func(started, wakeups, waiting, kept, handling float64) {
			t.Helper()
			now := figuresNow()
			for name, change := range map[string]float64{
				"started_sessions_total": started, "wakeups_total": wakeups,
				"sessionswaiting": waiting, "sessionskept": kept, "sessionshandling": handling,
			} {
				if n, ok := now[name]; !ok || n-before[name] != change {
					t.Errorf("got %s %v (there: %t), and %v before, want a change by %v", name, n, ok, before[name], change)
				}
			}
		}
		waiting, kept := 0.0, 1.0
		if t.armable {
			waiting, kept = 1, 0
		}
		handling, handled := make(chan bool), make(chan bool)
		t.startWith(&program{read: t.library.read, handle: func(string) error {
			handling <- true
			<-handled
			return nil
		}})
		t.awaitIdle()
		want(1, 0, waiting, kept, 0)
		t.send(frame("one"))
		<-handling
		want(1, waiting, 0, 0, 1)
		handled <- true
		t.awaitIdle()
		t.client.Close()
		t.wantEnd(io.EOF)
		want(1, 2*waiting, 0, 0, 0)
	})
}
