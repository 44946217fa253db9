package bench

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// openMax is how long the load may take to open all connections of a scenario, or to use each once.
// Ten thousand TLS handshakes take half a minute on a slow machine.
const openMax = 3 * time.Minute

// stage has the processes of one sample. Its methods do nothing once err is set.
type stage struct {
	ctx context.Context
	r   *runner
	err error

	servers []*process // the backend, if there is one, and the server under test
	backend *child     // or nil
	child   *child     // the server under test; nil if that is a Program
	load    *child
	loadOn  *cpuSet // nil: all
	warmUp  bool    // see idleMemory
	job     scenario.Scenario
	ops     int64 // that the load has done, also outside the window

	usage  func() scenario.Usage  // of the server under test
	memory func() scenario.Memory // the same
}

// sample takes one sample of s on arm. The rate is for an open loop; 0 means a closed loop.
func (r *runner) sample(ctx context.Context, s *scenario.Scenario, arm *Arm, rate float64) (sample Sample, err error) {
	st := &stage{ctx: ctx, r: r, job: *s, warmUp: arm.Program == nil}
	defer st.tearDown()
	if st.startServers(arm); st.err != nil {
		return sample, st.err
	}
	if s.Tool != "" {
		sample = st.toolSample(arm.Program.Output)
	} else {
		sample = st.builtinSample(rate)
	}
	if st.err != nil && ctx.Err() == nil {
		st.err = st.blame(st.err)
	}
	if p := arm.Program; st.err == nil && p != nil && p.Measured != nil {
		p.Measured(s.Name, st.ops)
	}
	return sample, st.err
}

// builtinSample takes a sample with the load generator.
func (st *stage) builtinSample(rate float64) Sample {
	var memory map[string]float64
	if all := st.job; all.Memory {
		st.job.Conns = 1
		st.startLoad()
		if memory = st.idleMemory(); st.err != nil || !all.Both {
			return Sample{Metrics: memory}
		}
		st.load.stop() // the window is one without idle connections
		st.job.Conns, st.job.Memory, st.job.Idle = all.Conns, false, 0
	}
	st.startLoad()
	sample := st.loadSample(rate)
	if st.err == nil {
		maps.Copy(sample.Metrics, memory)
	}
	return sample
}

func (st *stage) call(c *child, method string, in, out any, limit time.Duration) {
	if st.err == nil {
		st.err = c.call(st.ctx, method, in, out, limit)
	}
}

// startServers starts the server under test, and the one behind it.
func (st *stage) startServers(arm *Arm) {
	r, job := st.r, &st.job
	procs := job.Procs
	if procs == 0 && r.cfg.SplitCPUs {
		procs = processorCount() / 2
	}
	var serverOn *cpuSet
	if procs > 0 {
		serverOn, st.loadOn, st.err = giveProcessors(procs)
	}
	order := scenario.Order{Scenario: *job, Engine: arm.Engine, FileDir: r.dir}
	var started scenario.Started
	if job.Backend != nil && st.err == nil {
		st.backend = st.startServer("the backend", st.loadOn, false, r.exe, []string{entry.ServerArg}, nil)
		st.call(st.backend, "Start", scenario.Order{Scenario: *job.Backend, FileDir: r.dir}, &started, r.cfg.Hung)
		order.Behind = started.Addr
	}
	what, program := "the "+arm.Name+" server", arm.Program
	if arm.Engine.Installed() && st.err == nil {
		program, st.err = r.installed(&order, procs)
		job.Addr = order.Addr
	}
	switch {
	case st.err != nil:
		return
	case program != nil:
		st.startProgram(what, program, serverOn)
		return
	}
	st.child = st.startServer(what, serverOn, r.cfg.Counts, cmp.Or(arm.Executable, r.exe), r.cfg.serverArgs, arm.Env)
	st.call(st.child, "Start", order, &started, r.cfg.Hung)
	if st.err != nil {
		return
	}
	r.rep.noteUncounted(st.child.counters)
	if job.Procs == 0 && job.MaxProcs == 0 {
		arm.GOMAXPROCS = started.GOMAXPROCS
	}
	job.Addr = started.Addr
	st.usage = func() (u scenario.Usage) {
		st.call(st.child, "Usage", nil, &u, r.cfg.Hung)
		return u
	}
	st.memory = func() (m scenario.Memory) {
		st.call(st.child, "Memory", nil, &m, r.cfg.Hung)
		return m
	}
}

func (st *stage) startServer(what string, on *cpuSet, count bool, exe string, args, env []string) *child {
	c, err := startChild(what, on, count, exe, args, env)
	if st.err = err; err == nil {
		st.servers = append(st.servers, c.process)
	}
	return c
}

// startLoad starts a load process and opens the connections of the job.
func (st *stage) startLoad() {
	st.load, st.err = startChild("the load generator", st.loadOn, false, st.r.exe, []string{entry.LoadArg}, nil)
	st.call(st.load, "Prepare", st.job, nil, openMax)
	if st.job.Idle > 0 && !st.job.Memory {
		st.leave()
	}
}

// leave opens the idle connections. Each has had one request, or has requests whose handlers wait.
func (st *stage) leave() {
	job := st.job
	job.Conns, job.Callers = job.IdleConns(), 0
	if job.Waiting {
		job.Path = scenario.WaitPath
	}
	st.call(st.load, "Leave", job, nil, openMax)
	if job.Waiting {
		st.call(st.child, "Await", job.Idle, nil, openMax)
	}
	st.ops += int64(job.Idle)
}

// revive uses every idle connection once more, or makes the handlers that wait answer: a server that has
// closed the connections would look cheap.
func (st *stage) revive() {
	if st.job.Waiting {
		st.call(st.child, "Release", nil, nil, st.r.cfg.Hung)
	}
	st.call(st.load, "Revive", nil, nil, openMax)
	st.ops += int64(st.job.Idle)
}

func (st *stage) tearDown() {
	if st.load != nil {
		st.load.stop()
	}
	for _, p := range slices.Backward(st.servers) {
		p.stop()
	}
}

// blame adds to an error of the load that a server has died, if one has. The dead server is the
// cause, and a reset connection only the symptom.
func (st *stage) blame(err error) error {
	wait := time.After(dyingMax)
	for _, p := range slices.Backward(st.servers) {
		select {
		case <-p.exited:
			return fmt.Errorf("%w; then %w", p.death(), err)
		case <-wait:
			return err
		}
	}
	return err
}

// runPhase runs the load and blocks until every operation it began has ended.
func (st *stage) runPhase(d time.Duration, rate float64, seed uint64) (res scenario.Result) {
	ph := scenario.Phase{Duration: d, Grace: st.r.cfg.Hung, Rate: rate, Seed: seed}
	st.call(st.load, "Run", ph, &res, ph.Duration+2*ph.Grace)
	st.ops += res.Ops
	return res
}

// loadSample warms up and measures one window.
func (st *stage) loadSample(rate float64) Sample {
	cfg := &st.r.cfg
	if d := max(cfg.Warmup, 2*st.job.PauseMax); d > 0 { // all connections are used
		st.runPhase(d, rate, 1)
	}
	sample := st.window(rate)
	if st.job.Idle > 0 {
		st.revive()
	}
	return sample
}

// window runs the measured phase between two snapshots of the servers.
func (st *stage) window(rate float64) Sample {
	began, machine := time.Now(), machineCPU()
	behindBefore := st.usageBehind()
	before := st.usage()
	countsBefore := st.counts()                    // which are closer to the phase
	res := st.runPhase(st.r.cfg.Duration, rate, 2) // any seed except the warm-up's
	counts := st.counts()
	after := st.usage()
	behindAfter := st.usageBehind()
	if st.err == nil && res.Ops == 0 {
		st.err = fmt.Errorf("no operation ended within %v", st.r.cfg.Duration)
	}
	if st.err != nil {
		return Sample{}
	}
	m := map[string]float64{MetricRate: float64(res.Ops) / res.Elapsed.Seconds()}
	for metric, d := range res.Quantiles {
		m[metric] = float64(d)
	}
	if res.LateP99 > 0 { // after an open loop
		m[MetricLateP99] = float64(res.LateP99)
	}
	perOp := func(metric string, v float64) { m[metric] = v / float64(res.Ops) }
	perOp(MetricLoadCPU, float64(res.CPU))
	perOp(MetricCPU, float64(after.CPU()-before.CPU()))
	perOp(MetricUser, float64(after.User-before.User))
	perOp(MetricSystem, float64(after.System-before.System))
	perOp(MetricSwitch, float64(after.Switches-before.Switches))
	perOp(MetricAllocs, float64(after.Mallocs-before.Mallocs))
	perOp(MetricAlloc, float64(after.AllocBytes-before.AllocBytes))
	if after.FastPath > before.FastPath {
		perOp(MetricFast, float64(after.FastPath-before.FastPath))
	}
	for metric, n := range counts {
		perOp(metric, n-countsBefore[metric])
	}
	if busy := machineCPU() - machine; busy > 0 { // else it is unknown
		ours := after.CPU() - before.CPU() + behindAfter - behindBefore + res.CPU
		capacity := time.Since(began) * time.Duration(runtime.NumCPU())
		m[MetricOther] = 100 * max(0, float64(busy-ours)) / float64(capacity)
	}
	return Sample{Metrics: m, Latency: res.Latency}
}

// counts returns what the server's counters have counted so far.
func (st *stage) counts() (counts map[string]float64) {
	if st.err == nil {
		counts, st.err = st.servers[len(st.servers)-1].counters.read()
	}
	return counts
}

// usageBehind returns the CPU time of the server behind the one under test.
func (st *stage) usageBehind() time.Duration {
	var u scenario.Usage
	if st.backend != nil {
		st.call(st.backend, "Usage", nil, &u, st.r.cfg.Hung)
	}
	return u.CPU()
}

// idleWarmup is how long load runs before the memory of a server without connections is measured. What
// the first requests of a process allocate once must not count as memory of the connections.
const idleWarmup = 100 * time.Millisecond

// idleMemory measures the memory of idle connections. An arm's Program is not warmed up: it doesn't
// collect its garbage before, which would have room for thousands.
func (st *stage) idleMemory() map[string]float64 {
	if st.warmUp {
		st.runPhase(idleWarmup, 0, 1)
	}
	if st.err != nil {
		return nil
	}
	empty := st.memory()
	st.leave()
	select {
	case <-time.After(st.r.cfg.Settle):
	case <-st.ctx.Done():
		st.err = context.Cause(st.ctx)
	}
	full := st.memory()
	st.revive()
	perConn := func(full, empty int64) float64 { return float64(full-empty) / float64(st.job.Idle) }
	return map[string]float64{
		MetricResident:   perConn(full.Resident, empty.Resident),
		MetricHeap:       perConn(full.Heap, empty.Heap),
		MetricStack:      perConn(full.Stack, empty.Stack),
		MetricGoroutines: perConn(full.Goroutines, empty.Goroutines),
	}
}
