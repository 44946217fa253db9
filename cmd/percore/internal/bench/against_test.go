package bench

import (
	"regexp"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// TestChanges: what counts as a change between two builds.
func TestChanges(t *testing.T) {
	five := func(v float64) []float64 { return []float64{v, v, v, v, v} }
	for name, c := range map[string]struct {
		metric    string
		then, now []float64
		want      Verdict
	}{
		"the same":                            {MetricAllocs, five(8), five(8), Undecided},
		"within the limit":                    {MetricAllocs, five(100), five(101.9), Undecided},
		"more":                                {MetricAllocs, five(100), five(102.1), Worse},
		"less":                                {MetricAllocs, five(100), five(97.9), Better},
		"little":                              {MetricAllocs, five(0.1), five(0.19), Undecided},
		"few bytes":                           {MetricAlloc, five(10), five(26), Undecided},
		"more bytes":                          {MetricAlloc, five(10), five(27), Worse},
		"system calls vary":                   {MetricCalls, five(3), five(3.3), Undecided},
		"more system calls":                   {MetricCalls, five(3), five(3.31), Worse},
		"switches vary more":                  {MetricSwitch, five(1), five(1.5), Undecided},
		"more switches":                       {MetricSwitch, five(1), five(1.51), Worse},
		"in doubt":                            {MetricAllocs, five(100), []float64{99, 120, 120, 120, 120}, Undecided},
		"disturbed rounds":                    {MetricAlloc, five(140), []float64{141, 220, 230, 240, 250}, Undecided},
		"too few rounds":                      {MetricAllocs, []float64{8, 8}, []float64{9, 9}, Undecided},
		"three rounds, all apart":             {MetricAllocs, []float64{8, 8, 8}, []float64{9, 9, 9}, Worse},
		"never before":                        {MetricAllocs, five(0), five(1), Worse},
		"never before, and not always now":    {MetricAllocs, five(0), []float64{0, 1, 1, 1, 1}, Undecided},
		"no more":                             {MetricAllocs, five(1), five(0), Better},
		"more instructions, of few":           {MetricInstructions, five(1000), five(1100), Undecided},
		"more instructions":                   {MetricInstructions, five(10_000), five(10_201), Worse},
		"the memory of connections that wait": {MetricHeap, five(400), five(465), Worse},
	} {
		t.Run(name, func(t *testing.T) {
			arms := AgainstBuild([]Arm{{Name: "percore"}, {Name: "net"}}, "other")
			rep := &Report{Arms: arms, Results: []Result{{Scenario: "x", Samples: map[string][]Sample{}}}}
			for i, values := range [][]float64{c.now, c.then} {
				for _, v := range values {
					arm := arms[i].Name
					rep.Results[0].Samples[arm] = append(rep.Results[0].Samples[arm], Sample{Metrics: map[string]float64{
						c.metric: v, MetricP99: v, // which is not a change of the build
					}})
				}
			}
			changes := rep.Changes()
			if len(changes) != 1 {
				t.Fatalf("got %+v, want one figure", changes)
			}
			got := changes[0]
			if got.Scenario != "x" || got.Arm != "percore" || got.Metric.Name != c.metric || got.Before != c.then[0] || got.Verdict != c.want {
				t.Errorf("got %+v, want %v", got, c.want)
			}
		})
	}
}

// TestCounts: the counters count the server's calls, not those of the harness and the load. An echo is
// a read and a write for each operation; on package net there is often another read that finds nothing.
func TestCounts(t *testing.T) {
	cfg := quick(t, "percore,net", "^echo/128B/conns=1$")
	cfg.Counts = true
	rep, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("not counted: %q", rep.Uncounted)
	for _, c := range []struct {
		arm, metric string
		least, most float64
	}{
		{"percore", MetricReads, 1, 4},
		{"percore", MetricWrites, 1, 4},
		{"net", MetricReads, 1, 5},
		{"net", MetricWrites, 1, 4},
		{"net", MetricCalls, 2.5, 50},
		{"net", MetricInstructions, 1000, 1e9},
	} {
		v := only(t, rep).Values(c.arm, c.metric)
		uncounted := strings.Contains(strings.Join(rep.Uncounted, "\n"), c.metric+": ")
		switch {
		case uncounted != (len(v) == 0):
			t.Errorf("%s of %s: got %v, not counted: %t", c.metric, c.arm, v, uncounted)
		case !uncounted && (v[0] < c.least || v[0] > c.most):
			t.Errorf("%s of %s: got %v, want %v to %v", c.metric, c.arm, v, c.least, c.most)
		}
	}
	noChildren(t)
}

// TestAgainstBuild: the servers of the second arm are the other build's.
func TestAgainstBuild(t *testing.T) {
	cfg := quick(t, "net", "^echo/128B/conns=1$")
	cfg.Arms = AgainstBuild(cfg.Arms, "/nonexistent/percore")
	_, err := Run(t.Context(), cfg)
	if err == nil || !regexp.MustCompile(`net@before, round 1: .*/nonexistent/percore`).MatchString(err.Error()) {
		t.Errorf("error %v, want one about the missing build", err)
	}
	if e := cfg.Arms[1].Engine; e != (scenario.Engine{}) {
		t.Errorf("the other build has the engine %+v", e)
	}
	noChildren(t)
}
