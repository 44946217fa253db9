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
		want := func(name string, change float64) {
			t.Helper()
			if n, ok := figuresNow()[name]; !ok || n-before[name] != change {
				t.Errorf("got %s %v (there: %t), and %v before, want a change by %v", name, n, ok, before[name], change)
			}
		}
		waiting, kept, wakeups := 0.0, 1.0, 0.0
		if t.armable {
			waiting, kept, wakeups = 1, 0, 1
		}
		handling, handled := make(chan bool), make(chan bool)
		t.startWith(&program{read: t.library.read, handle: func(string) error {
			handling <- true
			<-handled
			return nil
		}})
		t.awaitIdle()
		want("sessionswaiting", waiting)
		want("sessionskept", kept)
		want("sessionshandling", 0)
		want("wakeups_total", 0)
		t.send(frame("one"))
		<-handling
		want("sessionswaiting", 0)
		want("sessionskept", 0)
		want("sessionshandling", 1)
		want("wakeups_total", wakeups)
		handled <- true
		t.awaitIdle()
		t.client.Close()
		t.wantEnd(io.EOF)
		for _, state := range []string{"waiting", "kept", "handling"} {
			want("sessions"+state, 0)
		}
		want("started_sessions_total", 1)
	})
}
