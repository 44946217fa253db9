package bench

import (
	"math"
	"slices"

	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// before is the end of the names of arms whose servers another build runs.
const before = "@before"

// AgainstBuild returns each arm twice: as it is, and with its servers run by another build of this
// program, at path.
func AgainstBuild(arms []Arm, path string) []Arm {
	var both []Arm
	for _, arm := range arms {
		other := arm
		other.Name, other.Executable, other.OtherBuildOf = arm.Name+before, path, arm.Name
		both = append(both, arm, other)
	}
	return both
}

// changeRules are the figures by which builds are compared: those that hardly depend on what else the
// machine does. Of these, system calls and context switches depend on how requests happen to meet.
var changeRules = map[string]struct {
	limit float64 // the share that a figure may be worse
	least float64 // smaller differences don't count
}{
	MetricInstructions: {0.02, 100},
	MetricAllocs:       {0.02, 0.1},
	MetricAlloc:        {0.02, 16},
	MetricCalls:        {0.1, 0.1},
	MetricReads:        {0.1, 0.1},
	MetricWrites:       {0.1, 0.1},
	MetricPolls:        {0.2, 0.1},
	MetricFutexes:      {0.5, 0.1},
	MetricSwitch:       {0.5, 0.1},
	MetricHeap:         {0.02, 64},
	MetricGoroutines:   {0.02, 0.1},
}

// Change is how a figure differs between two builds.
type Change struct {
	Scenario, Arm string
	Metric        Metric
	Before, After float64 // medians
	Verdict       Verdict // Undecided: within the limit, or not beyond doubt
}

// Changes compares the arms of AgainstBuild in all figures of changeRules. A figure is worse, or better,
// if it differs by more than its rule allows, and the spread of the rounds leaves no doubt.
func (rep *Report) Changes() []Change {
	var all []Change
	for i := range rep.Results {
		res := &rep.Results[i]
		for _, other := range rep.Arms {
			if other.OtherBuildOf == "" {
				continue
			}
			for _, m := range metrics {
				rule, compared := changeRules[m.Name]
				now, then := res.Values(other.OtherBuildOf, m.Name), res.Values(other.Name, m.Name)
				if !compared || len(now) == 0 || len(then) == 0 {
					continue
				}
				c := Change{Scenario: res.Scenario, Arm: other.OtherBuildOf, Metric: m, Before: stats.Median(then), After: stats.Median(now)}
				beyond := func(now, then float64) bool {
					return math.Abs(now-then) > max(rule.least, rule.limit*then)
				}
				// A disturbance mostly adds to a sample, so the smallest one must have moved, too.
				if beyond(c.After, c.Before) && beyond(slices.Min(now), slices.Min(then)) {
					c.Verdict = beyondDoubt(now, then)
				}
				all = append(all, c)
			}
		}
	}
	return all
}

// beyondDoubt says whether the samples of now are worse, which is more, or better than those of then.
func beyondDoubt(now, then []float64) Verdict {
	r := stats.Ratios(now, then)
	switch never := slices.Max(then) == 0; { // it has no ratio to anything
	case never && slices.Min(now) > 0, r.Clear() && r.Median > 1:
		return Worse
	case r.Clear():
		return Better
	}
	return Undecided
}
