package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// A Program is any server, measured from outside while it answers requests. It serves scenarios at their
// Addr.
type Program struct {
	Path   string
	Args   []string
	Env    []string      // KEY=VALUE, added to this process's
	Output io.Writer     // gets what it writes on standard output and standard error
	Start  time.Duration // how long it may take until it accepts connections

	// Ready, if not nil, is called when the program accepts connections. It may change the load.
	Ready func(ctx context.Context, load *scenario.Scenario) error

	// Measured, if not nil, is called before the program is stopped, with the number of operations that
	// the load has done.
	Measured func(scenario string, ops int64)
}

// installed returns nginx or nghttpd, with a worker for each processor that Go would use.
func (r *runner) installed(order *scenario.Order, procs int) (*Program, error) {
	dir, err := os.MkdirTemp(r.dir, order.Engine.Kind)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // for a free port
	if err != nil {
		return nil, err
	}
	order.Addr = l.Addr().String()
	if err := l.Close(); err != nil {
		return nil, err
	}
	if procs == 0 {
		procs = runtime.GOMAXPROCS(0)
	}
	args, err := target.Arguments(order, dir, procs)
	return &Program{Path: order.Engine.Kind, Args: args, Start: r.cfg.Hung}, err
}

// startProgram starts p as the server under test, and waits until it accepts connections.
func (st *stage) startProgram(what string, p *Program, on *cpuSet) {
	// As a supervisor does. It ends nginx's workers, too, which would outlive a master that is killed.
	const end = syscall.SIGTERM
	server := newProcess(what, p.Path, p.Args, p.Env, func(cmd *exec.Cmd) error { return cmd.Process.Signal(end) })
	if p.Output != nil {
		server.cmd.Stdout, server.cmd.Stderr = p.Output, p.Output
	}
	if err := server.start(on, st.r.cfg.Counts, end); err != nil {
		st.err = fmt.Errorf("start %s: %w", what, err)
		return
	}
	st.servers = append(st.servers, server)
	st.usage = func() (u scenario.Usage) { // all of it as user's; nothing is known about a heap
		for _, pid := range server.family() {
			used, err := target.CPU(pid)
			u.User += used
			st.err = errors.Join(st.err, err)
		}
		return u
	}
	st.memory = func() (m scenario.Memory) {
		for _, pid := range server.family() {
			n, err := target.Resident(pid)
			m.Resident += n
			st.err = errors.Join(st.err, err)
		}
		return m
	}
	st.err = server.accepts(st.ctx, st.job.Addr, p.Start)
	if st.err == nil && p.Ready != nil {
		st.err = p.Ready(st.ctx, &st.job)
	}
}

func (p *process) family() []int {
	pid := p.cmd.Process.Pid
	all := []int{pid}
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for text := range strings.FieldsSeq(string(children)) {
		child, _ := strconv.Atoi(text)
		all = append(all, child)
	}
	return all
}

// accepts waits until the process accepts connections at addr.
func (p *process) accepts(ctx context.Context, addr string, limit time.Duration) error {
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
		case <-p.exited:
			return fmt.Errorf("%w before it accepted connections at %s", p.death(), addr)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// toolSample runs a command that loads the program. The program's CPU time until the command ends counts
// as that of one operation.
func (st *stage) toolSample(output io.Writer) Sample {
	before := st.usage()
	tool := exec.CommandContext(st.ctx, "sh", "-c", st.job.Tool)
	tool.Stdout, tool.Stderr = output, output
	if st.err == nil {
		st.err = tool.Run()
	}
	return Sample{Metrics: map[string]float64{MetricCPU: float64(st.usage().CPU() - before.CPU())}}
}
