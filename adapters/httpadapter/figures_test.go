package httpadapter

import (
	"net/http"
	"runtime"
	"testing"

	"github.com/percore/percore"
)

// figure returns one of the figures that percore.ReadStats reports for this package, or -1.
func figure(name, of string) float64 {
	for _, a := range percore.ReadStats().Adapters {
		for _, f := range a.Figures {
			if a.Adapter == "http" && f.Name == name && f.Of == of {
				return f.Value
			}
		}
	}
	return -1
}

// TestFigures: the process's figures are sums over its Servers, including Servers that are gone.
func TestFigures(t *testing.T) {
	const reads, other = "fastpath_requests_total", "fastpath_declined_total"
	for _, f := range readFigures() {
		if f.Help == "" || (f.Label == "") != (f.Of == "") {
			t.Errorf("got %+v, want a help text, and a label exactly if there is a value of it", f)
		}
	}
	if figure("connections", "parked") < 0 || figure(other, "host") < 0 || figure(other, "plain") >= 0 {
		t.Errorf("got %+v, want all states and reasons from the start", readFigures())
	}
	requests, served := figure(reads, ""), figure("parks_total", "")
	s := wrap(&http.Server{})
	s.installed.Do(s.install)
	s.counts.Add(countRequests, 3)
	s.counts.Add(countParks, 2)
	if got := figure(reads, ""); got < requests+3 || figure("parks_total", "") < served+2 {
		t.Errorf("got %v requests, then %v, want 3 more", requests, got)
	}
	runtime.KeepAlive(s)
}
