package prometheus

import (
	"net/http"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
	"github.com/percore/percore/zerocopy"
)

// NewCollector returns a collector of the process's metrics, for a registry. It reads them at each
// collection, and keeps nothing. A registry accepts only one such collector.
func NewCollector() prom.Collector { return collector{} }

// Handler returns a handler for "/metrics" with its own registry. It serves the metrics of percore,
// of the Go runtime and of the process.
func Handler() http.Handler {
	reg := prom.NewRegistry()
	reg.MustRegister(NewCollector(), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}

type collector struct{}

// buildLabels are the labels of build_info. Versions are "(devel)" if the program wasn't built
// from a tagged version, and empty if it was built without modules.
var buildLabels = sync.OnceValue(func() []string {
	const module = "github.com/percore/percore"
	program, version, own := "", "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		program, version = info.Path, info.Main.Version
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module {
				own = m.Version
			}
		}
	}
	return []string{"program", program, "version", version, "percore", own, "goversion", runtime.Version()}
})

// Describe implements [prom.Collector].
func (collector) Describe(descs chan<- *prom.Desc) {
	seen := make(map[string]bool)
	for _, s := range everyKind() {
		if !seen[s.name] {
			seen[s.name] = true
			descs <- s.desc
		}
	}
}

// everyKind returns samples as of a program with a listener, a loop, and the adapters that are there.
func everyKind() []sample {
	return samplesOf(percore.Stats{
		Listeners: make([]percore.ListenerStats, 1),
		Loops:     loop.ProcessStats{Groups: []loop.Stats{{PerLoop: make([]loop.LoopStats, 1)}}},
		Adapters:  percore.ReadStats().Adapters,
	})
}

// Collect implements [prom.Collector].
func (collector) Collect(metrics chan<- prom.Metric) {
	for _, s := range samplesOf(percore.ReadStats()) {
		metrics <- prom.MustNewConstMetric(s.desc, s.kind, s.value, s.values...)
	}
}

// A sample is the value of a metric with some labels.
type sample struct {
	name   string
	desc   *prom.Desc
	kind   prom.ValueType
	values []string // of the labels
	value  float64
}

// batch holds the samples of one collection. It adds up samples of the same metric with the same
// labels: otherwise Prometheus refuses all metrics.
type batch struct {
	samples []sample
	index   map[string]int // in samples, by name and labels
}

// add adds the value of a metric called "percore_" and name, whose end tells its type. labels are names
// and values in turn.
func (b *batch) add(name, help string, value float64, labels ...string) {
	s := sample{name: "percore_" + name, kind: prom.GaugeValue, value: value}
	if strings.HasSuffix(name, "_total") {
		s.kind = prom.CounterValue
	}
	var names []string
	for pair := range slices.Chunk(labels, 2) {
		names = append(names, pair[0])
		// Prometheus requires UTF-8, but the path of a unix socket may be anything.
		s.values = append(s.values, strings.ToValidUTF8(pair[1], "\uFFFD"))
	}
	key := s.name + "\xff" + strings.Join(s.values, "\xff")
	if i, ok := b.index[key]; ok {
		b.samples[i].value += value
		return
	}
	s.desc = prom.NewDesc(s.name, help, names, nil)
	b.index[key] = len(b.samples)
	b.samples = append(b.samples, s)
}

// samplesOf returns the values of all metrics.
func samplesOf(s percore.Stats) []sample {
	b := batch{index: make(map[string]int)}
	b.add("build_info", "Always 1: the versions of the program, of percore in it, and of Go", 1, buildLabels()...)
	b.add("open_connections", "Connections that are open, accepted and dialed", float64(s.Conns))
	b.add("dialed_connections_total", "Connections that were dialed", float64(s.Dialed))
	b.add("closed_connections_total", "Connections that were closed", float64(s.Closed))
	b.addAccept("", "accept_", &s.Accept)
	b.addZeroCopy(&s.ZeroCopy)
	b.addPool(&s.Pool)
	for i := range s.Listeners {
		b.addListener(&s.Listeners[i])
	}
	for _, g := range s.Loops.Groups {
		b.add("group_loops", "Loops of a group, in use or not", float64(g.Loops), "group", g.Group, "strategy", g.Strategy)
		for i := range g.PerLoop {
			b.addLoop(&g.PerLoop[i].Counts, "group", g.Group, "loop", strconv.Itoa(g.PerLoop[i].Loop))
		}
	}
	for _, a := range s.Adapters {
		for _, f := range a.Metrics {
			if name := a.Adapter + "_" + f.Name; f.Label == "" {
				b.add(name, f.Help, f.Value)
			} else {
				b.add(name, f.Help, f.Value, f.Label, f.Of)
			}
		}
	}
	return b.samples
}

// addAccept adds the metrics of all listeners, or of each listener. Names that clearly refer to accepted
// connections need less of a prefix.
func (b *batch) addAccept(accepted, prefix string, a *percore.AcceptStats, labels ...string) {
	add := func(name, help string, n uint64) { b.add(name, help, float64(n), labels...) }
	add(accepted+"accepted_connections_total", "Connections that were accepted", a.Accepted)
	add(accepted+"adopted_connections_total", "Connections that were taken over from another process", a.Adopted)
	add(prefix+"backoffs_total", "Times that Accept waited because descriptors or memory were lacking", a.Backoffs)
	add(prefix+"limit_waits_total", "Times that Accept began to wait because MaxConns connections were open", a.LimitWaits)
	add(prefix+"made_room_total", "Connections that were closed between two requests because MaxConns were open and a client waited", a.MadeRoom)
	add(prefix+"refused_connections_total", "Connections that OnAccept did not want", a.Refused)
	add(prefix+"bad_headers_total", "Connections that were closed because of their PROXY header", a.BadHeaders)
	const skipped = "Connections that were lost before Accept returned them: the peer had gone (aborted), a protocol error, a network error"
	skip := func(reason string, n uint64) {
		b.add(prefix+"skipped_connections_total", skipped, float64(n), append(slices.Clone(labels), "reason", reason)...)
	}
	skip("aborted", a.SkippedAborted)
	skip("protocol", a.SkippedProtocol)
	skip("network", a.SkippedNetwork)
}

func (b *batch) addZeroCopy(s *zerocopy.Stats) {
	b.add("writev_bytes_total", "Bytes written by writev", float64(s.WritevBytes))
	b.add("writev_calls_total", "System calls of writev", float64(s.WritevCalls))
	b.add("pipes_open", "Pipes to splice through that are open", float64(s.PipesOpen))
	b.add("pipes_idle", "Pipes to splice through that are open and unused", float64(s.PipesIdle))
	moved := func(path string, n uint64) {
		b.add("moved_bytes_total", "Bytes that io.Copy and http.ServeContent moved, by their path: sendfile, splice, or copy, through memory", float64(n), "path", path)
	}
	moved("sendfile", s.SendfileBytes)
	moved("splice", s.SpliceBytes)
	moved("copy", s.CopiedBytes)
}

func (b *batch) addPool(s *pool.Stats) {
	b.add("pool_gets_total", "Buffers handed out by the pool", float64(s.Gets))
	b.add("pool_misses_total", "Buffers handed out for which memory was allocated", float64(s.Misses))
	b.add("pool_leaked_buffers_total", "Buffers that the garbage collector took while they were in use", float64(s.Leaked))
	b.add("pool_foreign_slices_total", "Slices given to the pool that can't be its own", float64(s.Foreign))
	b.add("pool_buffers_in_use", "Buffers handed out and not released", float64(s.BuffersInUse))
	b.add("pool_in_use_bytes", "Capacity of the buffers handed out and not released", float64(s.BytesInUse))
	b.add("pool_kept_bytes", "Capacity of the released buffers that the pool keeps", float64(s.BytesKept))
	b.add("pool_kept_limit_bytes", "The most that the pool keeps; 0 is for as much as the garbage collector leaves", float64(s.KeptBytesMax))
}

func (b *batch) addListener(l *percore.ListenerStats) {
	labels := []string{"network", l.Network, "address", l.Address}
	add := func(name, help string, value float64) { b.add("listener_"+name, help, value, labels...) }
	add("sockets", "Listening sockets", float64(l.Sockets))
	add("open_connections", "Connections that the listener has accepted and that are open", float64(l.Conns))
	add("connections_limit", "ListenConfig.MaxConns; 0 is for no limit", float64(l.MaxConns))
	add("full", "Whether Accept waits for a place, because MaxConns connections are open and none can be closed for a client (1)", ofBool(l.Full))
	add("awaiting_header_connections", "Connections whose PROXY header is awaited", float64(l.AwaitingHeader))
	b.addAccept("listener_", "listener_", &l.AcceptStats, labels...)
}

func (b *batch) addLoop(n *loop.Counts, labels ...string) {
	add := func(name, help string, value float64) { b.add("loop_"+name, help, value, labels...) }
	add("descriptors", "Descriptors that the loop watches", float64(n.Descriptors))
	add("registered_descriptors_total", "Descriptors that the loop was given", float64(n.Registered))
	add("wakeups_total", "Times that the loop was woken from waiting", float64(n.Wakeups))
	add("events_total", "Readiness events that the loop took from the kernel", float64(n.Events))
	add("deadlines_total", "Deadlines that came while they were set", float64(n.Deadlines))
	add("callback_seconds_total", "Time that callbacks and tasks kept the loop from its events", n.CallbackTime.Seconds())
	add("longest_pass_seconds", "The longest time of callbacks and tasks in one pass", n.LongestPass.Seconds())
	add("slow_passes_total", "Passes whose callbacks and tasks took 10 ms or more", float64(n.SlowPasses))
}

func ofBool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
