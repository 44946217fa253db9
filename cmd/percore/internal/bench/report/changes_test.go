package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench"
)

func TestChanges(t *testing.T) {
	arms := bench.AgainstBuild([]bench.Arm{{Name: "percore"}}, "old")
	samples := func(allocs float64) (all []bench.Sample) {
		for range 5 {
			all = append(all, bench.Sample{Metrics: map[string]float64{bench.MetricAllocs: allocs, bench.MetricAlloc: 512}})
		}
		return all
	}
	rep := &bench.Report{
		Arms: arms, Uncounted: []string{"instructions/op: no"},
		Results: []bench.Result{
			{Scenario: "echo", Samples: map[string][]bench.Sample{arms[0].Name: samples(3), arms[1].Name: samples(2)}},
			{Scenario: "http", Err: "the server died"},
		},
	}
	for _, all := range []bool{false, true} {
		var b bytes.Buffer
		worse, err := Changes(&b, rep, all)
		if worse != 1 || err != nil {
			t.Errorf("got %d, %v; want 1 and no error", worse, err)
		}
		for _, want := range []string{
			"not counted", "instructions/op: no", "http FAILED: the server died", "before", "0 figures are better, 1 worse, 1 within",
		} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, &b)
			}
		}
		rows := map[string]bool{"echo percore allocs/op 2.00 3.00 1.500 worse": true, "echo percore B/op 512B 512B 1.000 ≈": all}
		for row, want := range rows {
			got := false
			for line := range strings.Lines(b.String()) {
				got = got || strings.Join(strings.Fields(line), " ") == row
			}
			if got != want {
				t.Errorf("all %t: the line %q: %t, want %t, in\n%s", all, row, got, want, &b)
			}
		}
	}
}
