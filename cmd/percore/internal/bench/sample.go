package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/percore/percore/cmd/percore/internal/bench/latency"
	"github.com/percore/percore/cmd/percore/internal/bench/load"
	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// openMax is how long the load may take to open all connections of a scenario, or to use each once.
// Ten thousand TLS handshakes take half a minute on a slow machine.
const openMax = 3 * time.Minute

// stage has the processes of one sample: the server under test, the server behind it if the
// scenario has one, and the load.
type stage struct {
	backend *child // or nil
	server  *child
	addr    string // of server
	gen     *generator
	loadOn  processors // where the load and the backend run
}

// setUp starts the servers of a sample. The caller must tear it down.
func (r *runner) setUp(ctx context.Context, sc Scenario, arm *Arm) (*stage, error) {
	serverOn, loadOn, err := r.processors(sc)
	if err != nil {
		return nil, err
	}
	st := &stage{loadOn: loadOn}
	spec := sc.spec
	spec.Engine, spec.Dir, spec.SpinIterations = arm.Engine, r.dir, r.spin[sc.spin]
	if sc.backend != nil {
		backend := *sc.backend
		backend.Engine, backend.Dir = target.Engine{Name: target.EngineNet}, r.dir
		var started target.Started
		st.backend, started, err = r.startServer(ctx, "the backend", loadOn, r.exe, nil, backend)
		if err != nil {
			return nil, err
		}
		spec.Backend = started.Addr
	}
	server, started, err := r.startServer(ctx, "the "+arm.Name+" server", serverOn, r.executable(arm), arm.Env, spec)
	if err != nil {
		st.tearDown()
		return nil, err
	}
	st.server, st.addr = server, started.Addr
	if spec.Procs == 0 && sc.procs == 0 {
		arm.GOMAXPROCS, arm.Loops = started.GOMAXPROCS, started.Loops
	}
	return st, nil
}

// executable returns the program that runs the servers of an arm.
func (r *runner) executable(arm *Arm) string {
	if arm.Executable != "" {
		return arm.Executable
	}
	return r.exe
}

// processors returns the processors for the server of sc and for the load.
func (r *runner) processors(sc Scenario) (server, load processors, err error) {
	if sc.procs > 0 {
		return giveProcessors(sc.procs)
	}
	return r.serverCPUs, r.loadCPUs, nil
}

// startServer starts a target process and its server.
func (r *runner) startServer(ctx context.Context, what string, on processors, exe string, env []string, spec target.Spec) (*child, target.Started, error) {
	var started target.Started
	srv, err := startChild(what, on, r.cfg.Counts, exe, r.cfg.ServerArgs, env)
	if err != nil {
		return nil, started, err
	}
	r.rep.noteUncounted(srv.counters)
	if err := srv.call(ctx, target.OpStart, spec, &started, r.cfg.Hung); err != nil {
		srv.stop()
		return nil, started, err
	}
	return srv, started, nil
}

// tearDown ends the processes, the load first.
func (st *stage) tearDown() {
	if st.gen != nil {
		st.gen.stop()
	}
	if st.server != nil {
		st.server.stop()
	}
	if st.backend != nil {
		st.backend.stop()
	}
}

// dyingMax is the maximum time between a process resetting its connections and its parent reaping
// it.
const dyingMax = 3 * time.Second

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

// sample takes one sample of sc on arm. The rate is for an open loop; 0 means a closed loop.
func (r *runner) sample(ctx context.Context, sc Scenario, arm *Arm, round int, rate float64) (Sample, error) {
	st, err := r.setUp(ctx, sc, arm)
	if err != nil {
		return Sample{}, err
	}
	defer st.tearDown()
	var s Sample
	if sc.memory {
		s, err = r.idleSample(ctx, sc, st)
	} else {
		s, err = r.loadSample(ctx, sc, st, rate, r.profilePath(sc, arm, round))
	}
	if err != nil && ctx.Err() == nil {
		err = st.blame(err)
	}
	return s, err
}

// capacity returns the rate that the last arm reaches in a closed loop.
func (r *runner) capacity(ctx context.Context, sc Scenario) (float64, error) {
	closed := sc
	closed.share = 0
	arms := r.arms(sc)
	st, err := r.setUp(ctx, closed, arms[len(arms)-1])
	if err != nil {
		return 0, err
	}
	defer st.tearDown()
	s, err := r.loadSample(ctx, closed, st, 0, "")
	if err != nil {
		return 0, st.blame(err)
	}
	return s.Metrics[MetricRate], nil
}

// loadSample warms up and measures one window.
func (r *runner) loadSample(ctx context.Context, sc Scenario, st *stage, rate float64, profile string) (Sample, error) {
	if err := r.connect(ctx, sc, st); err != nil {
		return Sample{}, err
	}
	ph := load.Phase{
		Duration: r.cfg.Warmup, Grace: r.cfg.Hung, Rate: rate, Seed: 1, InTurn: sc.pause > 0,
		PauseMin: sc.pauseMin, PauseMax: sc.pauseMax, Within: sc.within,
	}
	ph.Duration = max(ph.Duration, 2*sc.pause, 2*sc.pauseMax) // so that all connections are used
	if ph.Duration > 0 {
		if _, err := st.gen.phase(ctx, ph); err != nil {
			return Sample{}, err
		}
	}
	if profile != "" {
		if err := st.server.call(ctx, target.OpProfileStart, target.Profile{Path: profile}, nil, r.cfg.Hung); err != nil {
			return Sample{}, err
		}
	}
	ph.Duration, ph.Seed = r.cfg.Duration, 2 // any seed except the warm-up's
	s, err := r.window(ctx, st, ph)
	if err != nil {
		return Sample{}, err
	}
	if profile != "" {
		if err := st.server.call(ctx, target.OpProfileStop, nil, nil, r.cfg.Hung); err != nil {
			return Sample{}, err
		}
	}
	if sc.idle > 0 {
		// A server that had closed them would have looked cheap.
		err = st.gen.call(ctx, load.OpRevive, nil, nil, openMax)
	}
	return s, err
}

// connect starts the load generator and opens the connections of sc. For a scenario with busy
// connections, this includes the idle ones.
func (r *runner) connect(ctx context.Context, sc Scenario, st *stage) error {
	job := sc.job
	job.Addr = st.addr
	gen, err := r.startLoad(ctx, st.loadOn, job)
	if err != nil {
		return err
	}
	st.gen = gen
	if sc.idle > 0 && !sc.memory {
		return gen.openIdle(ctx, job, sc.idle)
	}
	return nil
}

// window runs the measured phase between two snapshots of the servers.
func (r *runner) window(ctx context.Context, st *stage, ph load.Phase) (Sample, error) {
	machine := machineCPU()
	before, behindBefore, err := r.usage(ctx, st)
	if err != nil {
		return Sample{}, err
	}
	counted := make(map[string]float64)
	err = st.count(counted, -1)
	if err != nil {
		return Sample{}, err
	}
	seen, err := st.gen.phase(ctx, ph)
	if err != nil {
		return Sample{}, err
	}
	if err := st.count(counted, +1); err != nil {
		return Sample{}, err
	}
	after, behindAfter, err := r.usage(ctx, st)
	if err != nil {
		return Sample{}, err
	}
	if seen.ops == 0 {
		return Sample{}, fmt.Errorf("no operation ended within %v", ph.Duration)
	}
	m := seen.metrics
	serverMetrics(m, after.Since(before), seen)
	for metric, n := range counted {
		m[metric] = n / float64(seen.ops)
	}
	machine.noteOthers(m, after.CPU()-before.CPU()+behindAfter.CPU()-behindBefore.CPU()+seen.cpu)
	return Sample{Metrics: m, Latency: seen.latency}, nil
}

// count adds what the counters of the measured server say to m, times factor.
func (st *stage) count(m map[string]float64, factor float64) error {
	if c := st.server.counters; c != nil {
		return c.read(m, factor)
	}
	return nil
}

// usage returns what the server has consumed so far, and the server behind it if there is one.
func (r *runner) usage(ctx context.Context, st *stage) (server, backend target.Usage, err error) {
	if st.backend != nil {
		if err = st.backend.call(ctx, target.OpUsage, nil, &backend, r.cfg.Hung); err != nil {
			return server, backend, err
		}
	}
	err = st.server.call(ctx, target.OpUsage, nil, &server, r.cfg.Hung)
	return server, backend, err
}

// serverMetrics adds to m what the server and the load consumed per operation.
func serverMetrics(m map[string]float64, used target.Usage, seen observed) {
	perOp := func(v float64) float64 { return v / float64(seen.ops) }
	m[MetricCPU] = perOp(float64(used.CPU()))
	m[MetricUser] = perOp(float64(used.User))
	m[MetricSystem] = perOp(float64(used.System))
	m[MetricRate] = float64(seen.ops) / seen.elapsed.Seconds()
	m[MetricSwitch] = perOp(float64(used.Voluntary + used.Preempted))
	m[MetricAllocs] = perOp(float64(used.Mallocs))
	m[MetricAlloc] = perOp(float64(used.AllocBytes))
	m[MetricLoadCPU] = perOp(float64(seen.cpu))
	if used.FastPath > 0 {
		m[MetricFast] = perOp(float64(used.FastPath))
	}
	m[MetricMoves] = 1000 * perOp(float64(used.Moves))
	if used.Loops > 0 {
		m[MetricLoops] = float64(used.Loops)
	}
	if used.Wakeups > 0 {
		m[MetricWakeups] = perOp(float64(used.Wakeups))
		m[MetricEvents] = float64(used.Events) / float64(used.Wakeups)
	}
}

// noteOthers adds to m what share of the machine other processes have used since the clock was read.
func (began cpuClock) noteOthers(m map[string]float64, ours time.Duration) {
	if used, capacity := machineCPU().since(began); capacity > 0 {
		m[MetricOther] = 100 * max(0, float64(used-ours)) / float64(capacity)
	}
}

// settle waits until idle connections have settled, so many times as long.
func (r *runner) settle(ctx context.Context, times int) error {
	select {
	case <-time.After(r.cfg.Settle * time.Duration(times)):
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
func (r *runner) idleSample(ctx context.Context, sc Scenario, st *stage) (Sample, error) {
	if err := r.connect(ctx, sc, st); err != nil {
		return Sample{}, err
	}
	gen := st.gen
	if _, err := gen.phase(ctx, load.Phase{Duration: idleWarmup, Grace: r.cfg.Hung}); err != nil {
		return Sample{}, err
	}
	var empty, full target.Memory
	if err := st.server.call(ctx, target.OpMemory, nil, &empty, r.cfg.Hung); err != nil {
		return Sample{}, err
	}
	if err := r.fill(ctx, sc, st); err != nil {
		return Sample{}, err
	}
	if err := r.settle(ctx, max(1, sc.settles)); err != nil {
		return Sample{}, err
	}
	if err := st.server.call(ctx, target.OpMemory, nil, &full, r.cfg.Hung); err != nil {
		return Sample{}, err
	}
	// A server that had closed them would have looked cheap.
	if err := r.revive(ctx, sc, st); err != nil {
		return Sample{}, err
	}
	perConn := func(full, empty int64) float64 { return float64(full-empty) / float64(sc.idle) }
	return Sample{Metrics: map[string]float64{
		MetricResident:   perConn(full.Resident, empty.Resident),
		MetricHeap:       perConn(full.Heap, empty.Heap),
		MetricStack:      perConn(full.Stack, empty.Stack),
		MetricGoroutines: perConn(full.Goroutines, empty.Goroutines),
	}}, nil
}

// fill opens the idle connections of sc, to the server or, of its client, to the backend. Each has had
// one request. If sc is about waiting handlers,
// each has one request whose handler waits.
func (r *runner) fill(ctx context.Context, sc Scenario, st *stage) error {
	if sc.spec.CallIdle > 0 {
		_, err := r.hold(ctx, sc, st)
		return err
	}
	gen, job := st.gen, sc.job
	job.Addr = st.addr
	if !sc.waiting {
		return gen.openIdle(ctx, job, sc.idle)
	}
	job.Streams = sc.streams
	job.Conns, job.Path = sc.idle/max(1, sc.streams), target.WaitPath
	if err := gen.call(ctx, load.OpAsk, job, nil, openMax); err != nil {
		return err
	}
	return st.server.call(ctx, target.OpAwait, target.Waiting{Handlers: sc.idle}, nil, openMax)
}

// revive uses every connection of fill once more, or makes the waiting handlers answer.
func (r *runner) revive(ctx context.Context, sc Scenario, st *stage) error {
	if sc.spec.CallIdle > 0 {
		reused, err := r.hold(ctx, sc, st)
		if err == nil && reused < sc.idle {
			err = fmt.Errorf("the client has used %d of %d idle connections once more", reused, sc.idle)
		}
		return err
	}
	gen := st.gen
	if !sc.waiting {
		return gen.call(ctx, load.OpRevive, nil, nil, openMax)
	}
	if err := st.server.call(ctx, target.OpRelease, nil, nil, r.cfg.Hung); err != nil {
		return err
	}
	return gen.call(ctx, load.OpAnswers, nil, nil, openMax)
}

// hold makes the server's client use all its connections, and returns how many of them had been idle.
func (r *runner) hold(ctx context.Context, sc Scenario, st *stage) (int, error) {
	var reused target.Reused
	err := st.server.call(ctx, target.OpHold, target.Held{Calls: sc.idle}, &reused, openMax)
	return reused.Calls, err
}

// profilePath returns the file for the server's profile in one sample, or "" if there is no
// profile.
func (r *runner) profilePath(sc Scenario, arm *Arm, round int) string {
	if r.cfg.ProfileDir == "" {
		return ""
	}
	name := fmt.Sprintf("%s_%s_%d.pprof", sc.Name, arm.Name, round+1)
	return filepath.Join(r.cfg.ProfileDir, strings.ReplaceAll(name, "/", "_"))
}

// quantiles are the latencies in the report.
var quantiles = []struct {
	metric string
	q      float64
}{{MetricP50, 0.5}, {MetricP90, 0.9}, {MetricP99, 0.99}, {MetricP999, 0.999}}

// latencyMetrics adds the quantiles of a histogram to m.
func latencyMetrics(m map[string]float64, h *latency.Histogram) {
	for _, q := range quantiles {
		m[q.metric] = float64(h.Quantile(q.q))
	}
	m[MetricMax] = float64(h.Max())
}
