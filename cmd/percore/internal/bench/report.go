package bench

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// Report is everything that was measured, and where.
type Report struct {
	Host      Host      `json:"host"`
	Command   string    `json:"command"` // the command line
	Started   time.Time `json:"started"`
	Took      float64   `json:"tookSeconds"`
	Rounds    int       `json:"rounds"`               // requested samples per scenario and arm
	Window    float64   `json:"windowSeconds"`        // length of a measured window
	Warmup    float64   `json:"warmupSeconds"`        // before each
	SplitCPUs bool      `json:"split_cpus,omitempty"` // see Config
	Stopped   string    `json:"stopped,omitempty"`    // why the run ended early
	Uncounted []string  `json:"uncounted,omitempty"`  // with Config.Counts: metrics without a counter, and why
	Arms      []Arm     `json:"arms"`                 // see ArmsOf
	Results   []Result  `json:"results"`
}

// Host describes the machine and the program.
type Host struct {
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Kernel  string `json:"kernel"`
	CPU     string `json:"cpu"` // "" if unknown, and so is Memory if it is 0
	CPUs    int    `json:"cpus"`
	Memory  int64  `json:"memoryBytes"`
	Go      string `json:"go"`
	Version string `json:"version"` // of percore
}

// Result has the samples of one scenario.
type Result struct {
	Scenario string              `json:"scenario"`
	Procs    int                 `json:"procs,omitempty"` // the server's processors, in the scenarios of -scale
	Headline []string            `json:"headline"`        // the metrics that the scenario is about
	Rate     float64             `json:"rate,omitempty"`  // operations per second of an open loop
	Samples  map[string][]Sample `json:"samples"`         // by arm, one per round in order
	Err      string              `json:"error,omitempty"`
	Output   string              `json:"output,omitempty"`  // standard error of a process that died
	Skipped  string              `json:"skipped,omitempty"` // why the scenario was not run
}

// Sample holds the measurements of one window.
type Sample struct {
	Metrics map[string]float64 `json:"metrics"`

	// Latency has all latencies: an HDR histogram in nanoseconds, V2 compressed, base64. It is
	// empty if the load generator doesn't report them.
	Latency string `json:"latency,omitempty"`
}

func newResult(s *scenario.Scenario) Result {
	return Result{Scenario: s.Name, Procs: s.Procs, Headline: headline(s), Samples: map[string][]Sample{}}
}

// headline names the metrics that a scenario is about.
func headline(s *scenario.Scenario) []string {
	switch {
	case s.Tool != "":
		return []string{MetricCPU}
	case s.Memory && s.Both:
		return []string{MetricCPU, MetricRate, MetricP50, MetricP99, MetricResident}
	case s.Memory:
		return []string{MetricResident, MetricHeap, MetricGoroutines}
	case s.Computing: // which takes all available CPU time
		return []string{MetricRate, MetricP50, MetricP99}
	case s.Open():
		return []string{MetricCPU, MetricP50, MetricP99, MetricP999}
	case s.Procs > 0:
		return []string{MetricCPU, MetricRate, MetricP50, MetricP99, MetricSwitch}
	}
	return []string{MetricCPU, MetricRate, MetricP50, MetricP99}
}

// noteUncounted records what c could not count, which is the same for all servers of a run.
func (rep *Report) noteUncounted(c *counters) {
	if c == nil || rep.Uncounted != nil {
		return
	}
	for _, metric := range slices.Sorted(maps.Keys(c.uncounted)) {
		rep.Uncounted = append(rep.Uncounted, fmt.Sprintf("%s: %v", metric, c.uncounted[metric]))
	}
}

// ArmsOf returns the arms that were measured in a scenario. The first is compared with each of the
// others.
func (rep *Report) ArmsOf(res *Result) []Arm {
	var arms []Arm
	for _, arm := range rep.Arms {
		if len(res.Samples[arm.Name]) > 0 {
			arms = append(arms, arm)
		}
	}
	return arms
}

// Values returns one metric of one arm: a value per sample, in order.
func (res *Result) Values(arm, metric string) []float64 {
	var v []float64
	for _, s := range res.Samples[arm] {
		if x, ok := s.Metrics[metric]; ok {
			v = append(v, x)
		}
	}
	return v
}

// Measured reports whether there is anything to show.
func (res *Result) Measured() bool { return len(res.Samples) > 0 }

// Verdict is the result of a comparison.
type Verdict uint8

// The possible verdicts.
const (
	Undecided Verdict = iota // the spread is too wide to say which is better
	Better
	Worse
)

// String returns the verdict in the words of the table.
func (v Verdict) String() string {
	switch v {
	case Better:
		return "better"
	case Worse:
		return "worse"
	}
	return "≈"
}

// Compare compares arm with base in one metric, pair by pair.
func (res *Result) Compare(arm, base string, m Metric) (stats.Ratio, Verdict) {
	r := stats.Ratios(res.Values(arm, m.Name), res.Values(base, m.Name))
	switch {
	case !r.Clear():
		return r, Undecided
	case (r.Median > 1) == m.HigherIsBetter():
		return r, Better
	}
	return r, Worse
}

// commandLine returns the command as it was typed, without the directory of the program.
func commandLine() string {
	args := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	for i, a := range args {
		if strings.ContainsAny(a, " \t\n'\"\\|&;<>()$`*?[]#~") {
			args[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(args, " ")
}
