package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Config says what to measure, and for how long.
type Config struct {
	Arms     []Arm          // at least one; the first of a scenario is compared with each other
	Match    *regexp.Regexp // runs all scenarios with matching names; nil for the core set
	Rounds   int            // samples per scenario and arm
	Duration time.Duration  // of a measured window
	Warmup   time.Duration  // before each window
	Idle     int            // connections in scenarios about idle connections
	Settle   time.Duration  // time between opening idle connections and measuring them

	// SplitCPUs gives one half of the processors to the server under test and the other to the
	// load, as if they were on two machines.
	SplitCPUs bool

	// Scale runs only the scenarios about the number of processors.
	Scale bool

	// Counts adds the servers' system calls and instructions for each operation, as far as the kernel
	// lets this user count them; see Report.Uncounted.
	Counts bool

	ProfileDir string // directory for CPU profiles of the servers; "" for no profiles

	// ServerArgs and LoadArgs are the arguments that turn the running executable into a server
	// under test or a load generator. Package child has these processes.
	ServerArgs []string
	LoadArgs   []string

	// Hung is how long a server may take to answer before it counts as hung.
	Hung time.Duration

	// Run calls Progress before it takes each sample, and Skipped for every scenario that it
	// doesn't run. Either may be nil. Run calls them in its own goroutine.
	Progress func(Progress)
	Skipped  func(scenario, why string)
}

// Progress is how far a run has come.
type Progress struct {
	Done, Total int // samples
	Scenario    string
	Arm         string
	Round       int // from 1
}

// Check returns the first mistake in a configuration: something that no machine could run.
func (cfg *Config) Check() error {
	switch {
	case len(cfg.Arms) == 0:
		return errors.New("no arm to measure")
	case cfg.Rounds < 1:
		return fmt.Errorf("%d rounds: need at least one", cfg.Rounds)
	case cfg.Duration <= 0 || cfg.Warmup < 0 || cfg.Hung <= 0 || cfg.Settle < 0:
		return errors.New("durations must be positive")
	case cfg.Idle < 1:
		return fmt.Errorf("%d idle connections: need at least one", cfg.Idle)
	case !slices.ContainsFunc(Scenarios(cfg.Idle), cfg.wants):
		return fmt.Errorf("no scenario matches %q", cfg.Match)
	}
	return nil
}

// wants reports whether the user asked for sc.
func (cfg *Config) wants(sc Scenario) bool {
	switch {
	case cfg.Scale != sc.Scales():
		return false
	case cfg.Match == nil:
		return sc.Core
	}
	return cfg.Match.MatchString(sc.Name)
}

// runner is a run in progress. One goroutine uses it.
type runner struct {
	cfg                  Config
	exe                  string
	dir                  string                  // the files to download
	spin                 map[time.Duration]int64 // iterations of target.Spin by their duration
	rep                  *Report
	serverCPUs, loadCPUs processors // unless the scenario decides

	done  int // samples taken
	total int // samples to take

	skipped []Result // appended to the report
}

// Run measures what cfg says and blocks until it is done. It skips scenarios that the limits of the
// system don't allow. If a scenario fails, Run records that and continues with the others. It
// returns the measurements together with an error that names the first failure. When ctx ends, Run
// ends its processes and returns the measurements so far with the cause of ctx. When it returns,
// all its processes and files are gone.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the benchmark needs Linux: on %s percore is package net", runtime.GOOS)
	}
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cfg.Arms = slices.Clone(cfg.Arms) // Run stores the servers' reports there
	r := &runner{cfg: cfg, exe: exe, rep: newReport(cfg)}
	if cfg.SplitCPUs {
		if r.serverCPUs, r.loadCPUs, err = splitProcessors(); err != nil {
			return nil, err
		}
	}
	scenarios, err := r.choose()
	if err != nil {
		return nil, err
	}
	if err := r.prepare(scenarios); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.dir)
	err = r.runAll(ctx, scenarios)
	r.rep.Results = append(r.rep.Results, r.skipped...)
	r.rep.Took = time.Since(r.rep.Started).Seconds()
	return r.rep, err
}

// newReport returns an empty report.
func newReport(cfg Config) *Report {
	return &Report{
		Host: host(), Command: commandLine(), Started: time.Now().UTC().Truncate(time.Second),
		Rounds: cfg.Rounds, Window: cfg.Duration.Seconds(), Warmup: cfg.Warmup.Seconds(),
		SplitCPUs: cfg.SplitCPUs, Profiled: cfg.ProfileDir != "", Arms: cfg.Arms,
	}
}

// choose returns the scenarios to run, and records which ones can't run.
func (r *runner) choose() ([]Scenario, error) {
	var chosen []Scenario
	allowed := systemLimits()
	for _, sc := range Scenarios(r.cfg.Idle) {
		if !r.cfg.wants(sc) {
			continue
		}
		why := allowed.allow(sc)
		if why == nil && len(r.arms(sc)) == 0 {
			why = errors.New("no arm has a server for it")
		}
		if why != nil {
			r.skip(sc, why)
			continue
		}
		chosen = append(chosen, sc)
	}
	for _, sc := range chosen {
		r.total += r.samples(sc)
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("nothing to run: %s: %s", r.skipped[0].Scenario, r.skipped[0].Skipped)
	}
	return chosen, nil
}

// arms returns the arms that take part in sc.
func (r *runner) arms(sc Scenario) []*Arm {
	var arms []*Arm
	for i := range r.cfg.Arms {
		if arm := &r.cfg.Arms[i]; arm.takesPart(sc) {
			arms = append(arms, arm)
		}
	}
	return arms
}

// samples returns how many samples to take of sc.
func (r *runner) samples(sc Scenario) int { return r.cfg.Rounds * len(r.arms(sc)) }

// skip records that the run leaves out sc.
func (r *runner) skip(sc Scenario, why error) {
	res := sc.result()
	res.Skipped = why.Error()
	r.skipped = append(r.skipped, res)
	if r.cfg.Skipped != nil {
		r.cfg.Skipped(sc.Name, why.Error())
	}
}

// prepare makes the things that the scenarios share: the files to download and the amount of work
// for the processor-bound handlers.
func (r *runner) prepare(scenarios []Scenario) error {
	r.spin = map[time.Duration]int64{}
	for _, sc := range scenarios {
		if sc.spin == 0 || r.spin[sc.spin] != 0 {
			continue
		}
		n, err := target.CalibrateSpin(sc.spin)
		if err != nil {
			return err
		}
		r.spin[sc.spin] = n
	}
	for _, sc := range scenarios {
		if sc.spec.App == target.AppFiles || sc.backend != nil && sc.backend.App == target.AppFiles {
			return r.writeFiles()
		}
	}
	return nil
}

// writeFiles makes the directory that the file servers serve.
func (r *runner) writeFiles() error {
	dir, err := os.MkdirTemp("", "percore-bench-")
	if err != nil {
		return err
	}
	r.dir = dir
	for _, f := range fileSizes {
		if err := os.WriteFile(filepath.Join(dir, f.name), make([]byte, f.bytes), 0o600); err != nil {
			os.RemoveAll(dir)
			return err
		}
	}
	return nil
}

// runAll runs the scenarios one after the other.
func (r *runner) runAll(ctx context.Context, scenarios []Scenario) error {
	failed, first, next := 0, error(nil), 0
	for _, sc := range scenarios {
		r.done, next = next, next+r.samples(sc) // the previous scenario may have failed early
		res := sc.result()
		res.Samples = map[string][]Sample{}
		err := r.runScenario(ctx, sc, &res)
		if ctx.Err() != nil {
			if res.Measured() {
				r.rep.Results = append(r.rep.Results, res)
			}
			r.rep.Stopped = context.Cause(ctx).Error()
			return context.Cause(ctx)
		}
		if err != nil {
			res.Err = err.Error()
			var death *deathError
			if errors.As(err, &death) {
				res.Output = death.said
			}
			if failed++; first == nil {
				first = fmt.Errorf("%s: %w", sc.Name, err)
			}
		}
		r.rep.Results = append(r.rep.Results, res)
	}
	if failed > 1 {
		return fmt.Errorf("%d scenarios failed, the first: %w", failed, first)
	}
	return first
}

// runScenario takes all samples of one scenario into res, the arms in turn.
func (r *runner) runScenario(ctx context.Context, sc Scenario, res *Result) error {
	if sc.share > 0 {
		rate, err := r.capacity(ctx, sc)
		if err != nil {
			return fmt.Errorf("find the rate: %w", err)
		}
		res.Rate = roundDown(rate * sc.share)
	}
	if rate := sc.rate(); rate > 0 {
		res.Rate = rate
	}
	for round := range r.cfg.Rounds {
		for _, arm := range r.arms(sc) {
			if r.cfg.Progress != nil {
				r.cfg.Progress(Progress{Done: r.done, Total: r.total, Scenario: sc.Name, Arm: arm.Name, Round: round + 1})
			}
			s, err := r.sample(ctx, sc, arm, round, res.Rate)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", arm.Name, round+1, err)
			}
			res.Samples[arm.Name] = append(res.Samples[arm.Name], s)
			r.done++
		}
	}
	return nil
}

// roundDown cuts a rate to two digits. Such a rate is easy to name, and the next run is likely to
// get the same.
func roundDown(rate float64) float64 {
	if rate < 10 {
		return rate
	}
	unit := math.Pow(10, math.Floor(math.Log10(rate))-1)
	return math.Floor(rate/unit) * unit
}
