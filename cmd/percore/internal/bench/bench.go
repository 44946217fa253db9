// Package bench compares percore with package net. It runs the same servers and the same load on
// several engines in turn, each sample in processes of its own, and reports what the servers cost and
// what the clients saw.
//
// A sample has three steps. The harness starts a server (package target) and a load generator (package
// load), lets the load warm up, and measures a window between two snapshots of the server's
// consumption.
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

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Config says what to measure, and for how long.
type Config struct {
	Arms     []Arm               // at least one; the first of a scenario is compared with each other
	Match    *regexp.Regexp      // runs all scenarios with matching names; nil for the core set
	Own      []scenario.Scenario // to run instead of the builtin ones; nil for these
	Rounds   int                 // samples per scenario and arm
	Duration time.Duration       // of a measured window
	Warmup   time.Duration       // before each window
	Idle     int                 // connections in scenarios about idle connections
	Settle   time.Duration       // time between opening idle connections and measuring them

	// SplitCPUs gives one half of the processors to the server under test and the other to the
	// load, as if they were on two machines.
	SplitCPUs bool

	// Scale runs only the scenarios about the number of processors.
	Scale bool

	// Counts adds the servers' system calls and instructions for each operation, as far as the kernel
	// lets this user count them; see Report.Uncounted.
	Counts bool

	// Hung is how long a server may take to answer before it counts as hung.
	Hung time.Duration

	// Run calls Progress before it takes each sample, and Skipped for every scenario that it
	// doesn't run. Either may be nil. Run calls them in its own goroutine.
	Progress func(Progress)
	Skipped  func(scenario, why string)

	serverArgs []string // make an executable a server under test; a test has others than child's
}

// Progress is how far a run has come.
type Progress struct {
	Done, Total int // samples
	Scenario    string
	Arm         string
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
	case cfg.Own == nil && cfg.Idle < 1:
		return fmt.Errorf("%d idle connections: need at least one", cfg.Idle)
	case len(cfg.Scenarios()) == 0:
		return fmt.Errorf("no scenario matches %q", cfg.Match)
	}
	return nil
}

// Scenarios returns the scenarios that the user asked for.
func (cfg *Config) Scenarios() []scenario.Scenario {
	if cfg.Own != nil {
		return cfg.Own
	}
	return slices.DeleteFunc(cfg.AllScenarios(), func(s scenario.Scenario) bool {
		if cfg.Match == nil {
			return !s.Core
		}
		return !cfg.Match.MatchString(s.Name)
	})
}

// AllScenarios returns those that there are, about the number of processors or not.
func (cfg *Config) AllScenarios() []scenario.Scenario {
	return slices.DeleteFunc(scenario.List(cfg.Idle, processorCount()), func(s scenario.Scenario) bool {
		return cfg.Scale != (s.Procs > 0)
	})
}

// runner is a run in progress. One goroutine uses it.
type runner struct {
	cfg Config
	exe string
	dir string // for files
	rep *Report

	total int // samples to take
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
	if cfg.SplitCPUs && processorCount() < 2 {
		return nil, errors.New("can't split the processors: there is only one")
	}
	if cfg.serverArgs == nil {
		cfg.serverArgs = []string{entry.ServerArg}
	}
	cfg.Arms = slices.Clone(cfg.Arms) // Run stores the servers' reports there
	r := &runner{cfg: cfg, rep: &Report{
		Host: host(), Command: commandLine(), Started: time.Now().UTC().Truncate(time.Second),
		Rounds: cfg.Rounds, Window: cfg.Duration.Seconds(), Warmup: cfg.Warmup.Seconds(),
		SplitCPUs: cfg.SplitCPUs, Arms: cfg.Arms,
	}}
	chosen, skipped, err := r.choose()
	if err != nil {
		return nil, err
	}
	if r.exe, err = os.Executable(); err != nil {
		return nil, err
	}
	if r.dir, err = os.MkdirTemp("", "percore-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(r.dir)
	if err := r.prepare(chosen); err != nil {
		return nil, err
	}
	err = r.runAll(ctx, chosen)
	r.rep.Results = append(r.rep.Results, skipped...)
	r.rep.Took = time.Since(r.rep.Started).Seconds()
	return r.rep, err
}

// choose returns the scenarios to run, and the results of those that can't run.
func (r *runner) choose() (chosen []scenario.Scenario, skipped []Result, err error) {
	for _, s := range r.cfg.Scenarios() {
		why := allow(&s)
		if why == nil && len(r.arms(&s)) == 0 {
			why = errors.New("no arm has a server for it")
		}
		if why == nil {
			chosen = append(chosen, s)
			r.total += r.samples(&s)
			continue
		}
		res := newResult(&s)
		res.Skipped = why.Error()
		skipped = append(skipped, res)
		if r.cfg.Skipped != nil {
			r.cfg.Skipped(s.Name, res.Skipped)
		}
	}
	if len(chosen) == 0 {
		return nil, nil, fmt.Errorf("nothing to run: %s: %s", skipped[0].Scenario, skipped[0].Skipped)
	}
	return chosen, skipped, nil
}

func (r *runner) arms(s *scenario.Scenario) []*Arm {
	var arms []*Arm
	for i := range r.cfg.Arms {
		if arm := &r.cfg.Arms[i]; arm.Engine.Serves(s) {
			arms = append(arms, arm)
		}
	}
	return arms
}

func (r *runner) samples(s *scenario.Scenario) int { return r.cfg.Rounds * len(r.arms(s)) }

// prepare makes the things that the scenarios share: the files to download and the amount of work
// for the processor-bound handlers.
func (r *runner) prepare(chosen []scenario.Scenario) error {
	turns := map[time.Duration]int64{}
	for i := range chosen {
		s := &chosen[i]
		if s.Spin > 0 && turns[s.Spin] == 0 {
			turns[s.Spin] = target.CalibrateSpin(s.Spin)
		}
		s.SpinIterations = turns[s.Spin]
	}
	for name, bytes := range scenario.Files {
		if err := os.WriteFile(filepath.Join(r.dir, name), make([]byte, bytes), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) runAll(ctx context.Context, chosen []scenario.Scenario) error {
	failed, first, done := 0, error(nil), 0
	for i := range chosen {
		s := &chosen[i]
		res := newResult(s)
		err := r.runScenario(ctx, s, &res, done)
		done += r.samples(s)
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
				first = fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		r.rep.Results = append(r.rep.Results, res)
	}
	if failed > 1 {
		return fmt.Errorf("%d scenarios failed, the first: %w", failed, first)
	}
	return first
}

// runScenario takes all samples of one scenario into res, the arms in turn. done is how many of the
// run's samples are taken already.
func (r *runner) runScenario(ctx context.Context, s *scenario.Scenario, res *Result, done int) error {
	arms := r.arms(s)
	res.Rate = s.Rate()
	if s.Share > 0 { // of what the last arm reaches in a closed loop
		closed, err := r.sample(ctx, s, arms[len(arms)-1], 0)
		if err != nil {
			return fmt.Errorf("find the rate: %w", err)
		}
		res.Rate = roundDown(closed.Metrics[MetricRate] * s.Share)
	}
	for round := range r.cfg.Rounds {
		for _, arm := range arms {
			if r.cfg.Progress != nil {
				r.cfg.Progress(Progress{Done: done, Total: r.total, Scenario: s.Name, Arm: arm.Name})
			}
			sample, err := r.sample(ctx, s, arm, res.Rate)
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", arm.Name, round+1, err)
			}
			res.Samples[arm.Name] = append(res.Samples[arm.Name], sample)
			done++
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
