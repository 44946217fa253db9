package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"syscall"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// A Program is a server of any kind, which is measured from outside, while it answers requests.
type Program struct {
	Arm    string // its name in the report
	Path   string
	Args   []string
	Env    []string  // KEY=VALUE, added to this process's
	Output io.Writer // gets what it writes on standard output and standard error

	// Measured, if not nil, is called after each window, before the program is stopped, with the number
	// of operations that the load has done in the life of the process.
	Measured func(target string, ops int64)
}

// A Target is what a program is asked for. Tool, if not empty, is a command that does that instead of
// the builtin load, until it ends: then the program's CPU time counts as that of one operation.
type Target struct {
	Name string
	Job  scenario.Job
	Tool string

	// Message, if not nil, gets Job's Message from the program, which accepts connections by then.
	Message func(ctx context.Context) ([]byte, error)
}

// Programs are servers that are compared with each other. The programs take turns, and each round
// starts them anew: the first of them is compared with the others.
type Programs struct {
	Programs []Program
	Targets  []Target
	Start    time.Duration // how long a program may take until it accepts connections
}

// RunPrograms measures programs. Of cfg it heeds Rounds, Duration, Warmup, Idle (0: no idle
// connections), Settle, Hung and Progress. If a program fails, the report has what was measured
// before.
func RunPrograms(ctx context.Context, cfg Config, all Programs) (*Report, error) {
	for _, p := range all.Programs {
		cfg.Arms = append(cfg.Arms, Arm{Name: p.Arm})
	}
	r, err := newRunner(cfg)
	if err != nil {
		return nil, err
	}
	for _, t := range all.Targets {
		res := newResult(&t.Job.Scenario)
		res.Scenario = t.Name
		if t.Tool != "" {
			res.Headline = []string{MetricCPU}
		} else if cfg.Idle > 0 {
			res.Headline = append(res.Headline, MetricResident)
		}
		r.rep.Results = append(r.rep.Results, res)
	}
	total := cfg.Rounds * len(all.Programs)
	for i := range total {
		p := all.Programs[i%len(all.Programs)]
		if cfg.Progress != nil {
			cfg.Progress(Progress{Done: i, Total: total, Arm: p.Arm})
		}
		if err := r.runProgram(ctx, p, all); err != nil {
			return r.rep, fmt.Errorf("%s: %w", p.Arm, err)
		}
	}
	r.rep.Took = time.Since(r.rep.Started).Seconds()
	return r.rep, nil
}

// runProgram starts p, takes a sample for each target, and stops it.
func (r *runner) runProgram(ctx context.Context, p Program, all Programs) error {
	asked := func(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGTERM) } // as a supervisor does
	server := &foreign{newProcess(p.Path, p.Args, p.Env, asked)}
	server.cmd.Stdout, server.cmd.Stderr = p.Output, p.Output
	if err := server.start(nil, false); err != nil {
		return err
	}
	defer server.stop()
	for i, t := range all.Targets {
		if err := server.accepts(ctx, t.Job.Addr, all.Start); err != nil {
			return err
		}
		if t.Message != nil {
			var err error
			if t.Job.Message, err = t.Message(ctx); err != nil {
				return err
			}
		}
		sample, ops, err := r.programSample(ctx, server, t)
		if err != nil {
			select {
			case <-server.exited:
				err = fmt.Errorf("the program has ended: %v (%w)", server.waitErr, err)
			default:
			}
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		r.rep.Results[i].Samples[p.Arm] = append(r.rep.Results[i].Samples[p.Arm], sample)
		if p.Measured != nil {
			p.Measured(t.Name, ops)
		}
	}
	return nil
}

// programSample measures the memory of idle connections, and then a window of one target. It returns
// how many operations the load has done, also outside the window.
func (r *runner) programSample(ctx context.Context, server *foreign, t Target) (s Sample, ops int64, err error) {
	if t.Tool != "" {
		before := server.cpu()
		tool := exec.CommandContext(ctx, "sh", "-c", t.Tool)
		tool.Stdout, tool.Stderr = server.cmd.Stdout, server.cmd.Stderr
		err := tool.Run()
		return Sample{Metrics: map[string]float64{MetricCPU: float64(server.cpu() - before)}}, 0, err
	}
	idle := t.Job
	idle.Idle, idle.Memory, idle.Conns = r.cfg.Idle, true, 1
	one := &stage{ctx: ctx, r: r, job: idle, memory: server.memory}
	var resident float64
	if r.cfg.Idle > 0 {
		defer one.tearDown()
		one.startLoad()
		resident = one.idleMemory()[MetricResident]
		one.tearDown()
	}
	many := &stage{ctx: ctx, r: r, job: t.Job, usage: server.usage}
	defer many.tearDown()
	if many.err = one.err; many.err == nil {
		many.startLoad()
		s = many.loadSample(0)
	}
	if many.err == nil && r.cfg.Idle > 0 {
		s.Metrics[MetricResident] = resident
	}
	return s, one.ops + many.ops, many.err
}

// foreign is the process of a Program.
type foreign struct{ *process }

// accepts waits until the process accepts connections at addr.
func (f *foreign) accepts(ctx context.Context, addr string, limit time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the program doesn't accept connections at %s within %v: is the address right?", addr, limit))
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.exited:
			return fmt.Errorf("the program has ended before it accepted connections at %s: %v", addr, f.waitErr)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// cpu, usage and memory return 0 once the process is gone.
func (f *foreign) cpu() time.Duration {
	used, _ := target.CPU(f.cmd.Process.Pid)
	return used
}

func (f *foreign) usage() scenario.Usage { return scenario.Usage{User: f.cpu()} }

func (f *foreign) memory() (m scenario.Memory) {
	m.Resident, _ = target.Resident(f.cmd.Process.Pid)
	return m
}
