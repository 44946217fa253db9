package bench

import (
	"cmp"
	"context"
	"fmt"
	"time"

	entry "github.com/percore/percore/cmd/percore/internal/bench/child"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// openMax is how long the load may take to open all connections of a scenario, or to use each once.
// Ten thousand TLS handshakes take half a minute on a slow machine.
const openMax = 3 * time.Minute

// stage has the processes of one sample.
type stage struct {
	r       *runner
	s       *scenario.Scenario
	backend *child // or nil
	server  *child // under test
	load    *child
	job     scenario.Job
}

// sample takes one sample of s on arm. The rate is for an open loop; 0 means a closed loop.
func (r *runner) sample(ctx context.Context, s *scenario.Scenario, arm *Arm, rate float64) (Sample, error) {
	st := &stage{r: r, s: s}
	defer st.tearDown()
	err := st.setUp(ctx, arm)
	if err != nil {
		return Sample{}, err
	}
	var sample Sample
	if s.Memory {
		sample, err = st.idleSample(ctx)
	} else {
		sample, err = st.loadSample(ctx, rate)
	}
	if err != nil && ctx.Err() == nil {
		err = st.blame(err)
	}
	return sample, err
}

// setUp starts the servers, and the load, whose connections it opens.
func (st *stage) setUp(ctx context.Context, arm *Arm) (err error) {
	r, s := st.r, st.s
	serverOn, loadOn := r.serverCPUs, r.loadCPUs
	if s.Procs > 0 {
		if serverOn, loadOn, err = giveProcessors(s.Procs); err != nil {
			return err
		}
	}
	order := scenario.Order{Scenario: *s, Engine: arm.Engine, FileDir: r.dir}
	var started scenario.Started
	if s.Backend != nil {
		if st.backend, err = startChild("the backend", loadOn, false, r.exe, []string{entry.ServerArg}, nil); err != nil {
			return err
		}
		behind := scenario.Order{Scenario: *s.Backend, FileDir: r.dir}
		if err = st.backend.call(ctx, "Start", behind, &started, r.cfg.Hung); err != nil {
			return err
		}
		order.Behind = started.Addr
	}
	st.server, err = startChild("the "+arm.Name+" server", serverOn, r.cfg.Counts, cmp.Or(arm.Executable, r.exe), r.cfg.serverArgs, arm.Env)
	if err != nil {
		return err
	}
	r.rep.noteUncounted(st.server.counters)
	if err = st.server.call(ctx, "Start", order, &started, r.cfg.Hung); err != nil {
		return err
	}
	if s.Procs == 0 && s.MaxProcs == 0 {
		arm.GOMAXPROCS, arm.Loops = started.GOMAXPROCS, started.Loops
	}
	st.job = scenario.Job{Scenario: *s, Addr: started.Addr}
	if st.load, err = startLoad(ctx, loadOn, r.exe, st.job); err != nil {
		return st.blame(err)
	}
	if s.Idle > 0 && !s.Memory {
		return st.load.call(ctx, "Leave", idleJob(st.job, s.Idle), nil, openMax)
	}
	return nil
}

// startLoad starts a load process and connects it as job says.
func startLoad(ctx context.Context, on processors, exe string, job scenario.Job) (*child, error) {
	c, err := startChild("the load generator", on, false, exe, []string{entry.LoadArg}, nil)
	if err != nil {
		return nil, err
	}
	if err := c.call(ctx, "Prepare", job, nil, openMax); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

// idleJob is a load of n idle connections in addition to those of job.
func idleJob(job scenario.Job, n int) scenario.Job {
	job.Conns, job.Callers = n, 0
	return job
}

// tearDown ends the processes, the load first.
func (st *stage) tearDown() {
	for _, c := range []*child{st.load, st.server, st.backend} {
		if c != nil {
			c.stop()
		}
	}
}

// blame adds to an error of the load that a server has died, if one has. The dead server is the
// cause, and a reset connection only the symptom.
func (st *stage) blame(err error) error {
	wait := time.After(dyingMax)
	for _, c := range []*child{st.server, st.backend} {
		if c == nil {
			continue
		}
		select {
		case <-c.exited:
			return fmt.Errorf("%w; then %w", c.death(), err)
		case <-wait:
			return err
		}
	}
	return err
}

// runPhase runs the load and blocks until every operation it began has ended.
func (c *child) runPhase(ctx context.Context, ph scenario.Phase) (res scenario.Result, err error) {
	return res, c.call(ctx, "Run", ph, &res, ph.Duration+2*ph.Grace)
}

// loadSample warms up and measures one window.
func (st *stage) loadSample(ctx context.Context, rate float64) (Sample, error) {
	cfg := &st.r.cfg
	ph := scenario.Phase{Duration: max(cfg.Warmup, 2*st.s.PauseMax), Grace: cfg.Hung, Rate: rate, Seed: 1} // all connections are used
	if ph.Duration > 0 {
		if _, err := st.load.runPhase(ctx, ph); err != nil {
			return Sample{}, err
		}
	}
	ph.Duration, ph.Seed = cfg.Duration, 2 // any seed except the warm-up's
	sample, err := st.window(ctx, ph)
	if err == nil && st.s.Idle > 0 {
		// A server that had closed them would have looked cheap.
		err = st.load.call(ctx, "Revive", nil, nil, openMax)
	}
	return sample, err
}

// window runs the measured phase between two snapshots of the servers.
func (st *stage) window(ctx context.Context, ph scenario.Phase) (Sample, error) {
	machine := machineCPU()
	before, behindBefore, err := st.usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	counted := make(map[string]float64)
	if err := st.server.counters.read(counted, -1); err != nil {
		return Sample{}, err
	}
	res, err := st.load.runPhase(ctx, ph)
	if err != nil {
		return Sample{}, err
	}
	if err := st.server.counters.read(counted, +1); err != nil {
		return Sample{}, err
	}
	after, behindAfter, err := st.usage(ctx)
	if err != nil {
		return Sample{}, err
	}
	if res.Ops == 0 {
		return Sample{}, fmt.Errorf("no operation ended within %v", ph.Duration)
	}
	m := loadMetrics(&res)
	perOp := func(metric string, v float64) { m[metric] = v / float64(res.Ops) }
	perOp(MetricCPU, float64(after.CPU()-before.CPU()))
	perOp(MetricUser, float64(after.User-before.User))
	perOp(MetricSystem, float64(after.System-before.System))
	perOp(MetricSwitch, float64(after.Switches-before.Switches))
	perOp(MetricAllocs, float64(after.Mallocs-before.Mallocs))
	perOp(MetricAlloc, float64(after.AllocBytes-before.AllocBytes))
	if after.FastPath > before.FastPath {
		perOp(MetricFast, float64(after.FastPath-before.FastPath))
	}
	for metric, n := range counted {
		perOp(metric, n)
	}
	if st.s.Overload > 0 {
		m[MetricGood] = float64(res.Good) / ph.Duration.Seconds()
		m[MetricRefused] = 100 * float64(res.Refused) / float64(res.Ops+res.Refused)
	}
	machine.noteOthers(m, after.CPU()-before.CPU()+behindAfter.CPU()-behindBefore.CPU()+res.CPU)
	return Sample{Metrics: m, Latency: res.Latency}, nil
}

// loadMetrics returns what the load has seen.
func loadMetrics(res *scenario.Result) map[string]float64 {
	m := map[string]float64{
		MetricRate:    float64(res.Ops) / res.Elapsed.Seconds(),
		MetricLoadCPU: float64(res.CPU) / float64(res.Ops),
	}
	for metric, name := range map[string]string{MetricP50: "50", MetricP90: "90", MetricP99: "99", MetricP999: "99.9", MetricMax: "max"} {
		m[metric] = float64(res.Quantiles[name])
	}
	if res.ServiceP99 > 0 {
		m[MetricServiceP99], m[MetricLateP99] = float64(res.ServiceP99), float64(res.LateP99)
	}
	return m
}

// usage returns what the server has consumed so far, and the server behind it if there is one.
func (st *stage) usage(ctx context.Context) (server, backend scenario.Usage, err error) {
	if st.backend != nil {
		if err = st.backend.call(ctx, "Usage", nil, &backend, st.r.cfg.Hung); err != nil {
			return server, backend, err
		}
	}
	err = st.server.call(ctx, "Usage", nil, &server, st.r.cfg.Hung)
	return server, backend, err
}

// settle waits until idle connections have settled.
func (r *runner) settle(ctx context.Context) error {
	select {
	case <-time.After(r.cfg.Settle):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// idleWarmup is how long load runs before the memory of a server without connections is measured.
// The first requests of a process allocate some memory once, which must not count as memory of the
// connections.
const idleWarmup = 100 * time.Millisecond

// idleSample measures the memory of idle connections.
func (st *stage) idleSample(ctx context.Context) (Sample, error) {
	cfg := &st.r.cfg
	if _, err := st.load.runPhase(ctx, scenario.Phase{Duration: idleWarmup, Grace: cfg.Hung}); err != nil {
		return Sample{}, err
	}
	var empty, full scenario.Memory
	if err := st.server.call(ctx, "Memory", nil, &empty, cfg.Hung); err != nil {
		return Sample{}, err
	}
	if err := st.fill(ctx); err != nil {
		return Sample{}, err
	}
	if err := st.r.settle(ctx); err != nil {
		return Sample{}, err
	}
	if err := st.server.call(ctx, "Memory", nil, &full, cfg.Hung); err != nil {
		return Sample{}, err
	}
	// A server that had closed them would have looked cheap.
	if err := st.revive(ctx); err != nil {
		return Sample{}, err
	}
	perConn := func(full, empty int64) float64 { return float64(full-empty) / float64(st.s.Idle) }
	return Sample{Metrics: map[string]float64{
		MetricResident:   perConn(full.Resident, empty.Resident),
		MetricHeap:       perConn(full.Heap, empty.Heap),
		MetricStack:      perConn(full.Stack, empty.Stack),
		MetricGoroutines: perConn(full.Goroutines, empty.Goroutines),
	}}, nil
}

// fill opens the idle connections, to the server or, of its client, to the backend. Each has had one
// request, or has requests whose handlers wait.
func (st *stage) fill(ctx context.Context) error {
	s := st.s
	switch {
	case s.Calls.Idle > 0:
		return st.server.call(ctx, "Hold", s.Idle, new(int), openMax)
	case !s.Waiting:
		return st.load.call(ctx, "Leave", idleJob(st.job, s.Idle), nil, openMax)
	}
	job := idleJob(st.job, s.IdleConns())
	job.Path = scenario.WaitPath
	if err := st.load.call(ctx, "Ask", job, nil, openMax); err != nil {
		return err
	}
	return st.server.call(ctx, "Await", s.Idle, nil, openMax)
}

// revive uses every connection of fill once more, or makes the waiting handlers answer.
func (st *stage) revive(ctx context.Context) error {
	s := st.s
	switch {
	case s.Calls.Idle > 0:
		reused := 0
		err := st.server.call(ctx, "Hold", s.Idle, &reused, openMax)
		if err == nil && reused < s.Idle {
			err = fmt.Errorf("the client has used %d of %d idle connections once more", reused, s.Idle)
		}
		return err
	case !s.Waiting:
		return st.load.call(ctx, "Revive", nil, nil, openMax)
	}
	if err := st.server.call(ctx, "Release", nil, nil, st.r.cfg.Hung); err != nil {
		return err
	}
	return st.load.call(ctx, "Answers", nil, nil, openMax)
}
