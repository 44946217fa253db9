package httpadapter

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
)

// metric returns one of the metrics that percore.ReadStats reports for this package, or -1.
func metric(name, of string) float64 {
	for _, a := range percore.ReadStats().Adapters {
		for _, f := range a.Metrics {
			if a.Adapter == "http" && f.Name == name && f.Of == of {
				return f.Value
			}
		}
	}
	return -1
}

// TestMetrics: the process's metrics are sums over its Servers, including Servers that are gone.
func TestMetrics(t *testing.T) {
	const reads, other = "http1_requests_total", "http1_odd_requests_total"
	for _, f := range readMetrics() {
		if f.Help == "" || (f.Label == "") != (f.Of == "") {
			t.Errorf("got %+v, want a help text, and a label exactly if there is a value of it", f)
		}
	}
	if metric("connections", "parked") < 0 || metric(other, "host") < 0 || metric(other, "plain") >= 0 {
		t.Errorf("got %+v, want all states and reasons from the start", readMetrics())
	}
	requests, hijacked := metric(reads, ""), metric("hijacked_connections_total", "")
	s := Wrap(&http.Server{})
	s.installed.Do(s.install)
	s.counts.Add(h1.CountRequests, 3)
	s.counts.Add(h1.CountHijacked, 2)
	if got := metric(reads, ""); got < requests+3 || metric("hijacked_connections_total", "") < hijacked+2 {
		t.Errorf("got %v requests, then %v, want 3 more", requests, got)
	}
	runtime.KeepAlive(s)
}
