// Package load is the process of the load generator. It drives a target over plain package net,
// with one goroutine per connection (or per gRPC caller). It builds the request bytes once, and
// parses as little as it can of an answer. So even on a small machine the benchmark measures the
// server.
//
// The harness starts one such process per sample. A phase (warm-up or measurement) ends only when
// every operation it began has ended. So nothing is in flight between phases, and the server's CPU
// time belongs to exactly the operations counted.
//
// A phase is a closed loop or an open loop. In a closed loop each worker begins its next operation
// when the last has ended. In an open loop operations begin at times fixed beforehand, whatever the
// server does. There latency counts from the time at which an operation was due, so an operation
// that had to wait behind a slow one shows it. Otherwise a server could stall unnoticed
// ("coordinated omission").
package load

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// Process is a load process. The harness calls its methods, one at a time.
type Process struct {
	job     scenario.Scenario
	busy    []session // Run drives these
	idle    []session // left alone
	waiting bool      // with requests on the idle ones that are not answered yet
}

// Prepare opens the connections that Run drives.
func (p *Process) Prepare(job scenario.Scenario, _ *scenario.None) (err error) {
	p.job = job
	p.busy, err = open(&job)
	return err
}

// Leave opens Conns more connections, uses each once and leaves them alone. If the server's handlers
// wait, it only sends the requests.
func (p *Process) Leave(job scenario.Scenario, _ *scenario.None) (err error) {
	if p.idle, err = open(&job); err != nil {
		return err
	}
	if p.waiting = job.Waiting; p.waiting {
		return each(p.idle, "send request", func(s session) error { return s.(asker).send() })
	}
	return p.Revive(scenario.None{}, nil)
}

// Revive uses every connection of Leave once more, or reads the answers that were left open.
func (p *Process) Revive(scenario.None, *scenario.None) error {
	if p.waiting {
		return each(p.idle, "read answer", func(s session) error { return s.(asker).receive() })
	}
	return each(p.idle, "use idle connection", session.op)
}

// quantiles are the latencies in a Result, by their metrics.
var quantiles = map[string]float64{"p50-ns": 0.5, "p90-ns": 0.9, "p99-ns": 0.99, "p99.9-ns": 0.999, "max-ns": 1}

// Run drives the sessions for one phase, each in its own goroutine. It returns when every operation
// that it began has ended.
func (p *Process) Run(ph scenario.Phase, res *scenario.Result) (err error) {
	p.setDeadline(time.Now().Add(ph.Duration + ph.Grace))
	defer p.setDeadline(time.Time{})
	cpu, began := processCPU(), time.Now()
	var c *crew
	if p.job.Open() && (ph.Rate > 0 || p.job.PauseMax > 0) {
		c, err = openLoop(p.busy, scheduleOf(&p.job, len(p.busy), &ph), sleep)
	} else {
		c, err = closedLoop(p.busy, ph.Duration)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("the server stopped answering: an operation was still open %v after the end of the phase (%w)", ph.Grace, err)
	}
	if err != nil {
		return err
	}
	*res = scenario.Result{
		Ops: c.latency.h.TotalCount(), Elapsed: time.Since(began), CPU: processCPU() - cpu,
		Quantiles: make(map[string]time.Duration),
	}
	for name, q := range quantiles {
		res.Quantiles[name] = c.latency.quantile(q)
	}
	if c.late != nil {
		res.LateP99 = c.late.quantile(0.99)
	}
	res.Latency, err = c.latency.encode()
	return err
}

func (p *Process) setDeadline(t time.Time) {
	for _, s := range p.busy {
		s.setDeadline(t)
	}
}

// processCPU returns the CPU time that this process has used, 0 if that is unknown.
func processCPU() time.Duration {
	used, _ := target.CPU(os.Getpid())
	return used
}
