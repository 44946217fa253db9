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

// buildInfo is a constant about the program. Its labels join it to other metrics.
var buildInfo = newMetric("build_info", "Always 1: the versions of the program, of percore in it, and of Go",
	"program", "version", "percore", "goversion")

// buildLabels are the values of buildInfo's labels. Versions are "(devel)" if the program wasn't built
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
	return []string{program, version, own, runtime.Version()}
})

// Describe implements [prom.Collector].
func (collector) Describe(descs chan<- *prom.Desc) {
	for _, m := range fixed() {
		descs <- m.desc
	}
	seen := make(map[string]bool)
	for _, a := range percore.ReadStats().Adapters {
		for _, f := range a.Metrics {
			if m := ofAdapter(a.Adapter, f); !seen[m.name] {
				seen[m.name] = true
				descs <- m.desc
			}
		}
	}
}

// Collect implements [prom.Collector].
func (collector) Collect(metrics chan<- prom.Metric) {
	for _, s := range samplesOf(percore.ReadStats()) {
		metrics <- prom.MustNewConstMetric(s.desc, s.kind, s.value, s.labels...)
	}
}

// A metric is a name with its help text, labels and type.
type metric struct {
	name string
	desc *prom.Desc
	kind prom.ValueType
}

// newMetric makes a metric called "percore_" and name. Its name tells its type.
func newMetric(name, help string, labels ...string) metric {
	m := metric{name: "percore_" + name, kind: prom.GaugeValue}
	if strings.HasSuffix(name, "_total") {
		m.kind = prom.CounterValue
	}
	m.desc = prom.NewDesc(m.name, help, labels, nil)
	return m
}

func ofAdapter(adapter string, f percore.Metric) metric {
	if f.Label == "" {
		return newMetric(adapter+"_"+f.Name, f.Help)
	}
	return newMetric(adapter+"_"+f.Name, f.Help, f.Label)
}

// rows are metrics of one kind of thing, each with its field of T.
type rows[T any] []struct {
	metric
	value func(*T) float64
}

// The metrics, by the kind of thing.
var (
	ofProcess = rows[percore.Stats]{
		{newMetric("open_connections", "Connections that are open, accepted and dialed"),
			func(s *percore.Stats) float64 { return float64(s.Conns) }},
		{newMetric("dialed_connections_total", "Connections that were dialed"),
			func(s *percore.Stats) float64 { return float64(s.Dialed) }},
		{newMetric("closed_connections_total", "Connections that were closed"),
			func(s *percore.Stats) float64 { return float64(s.Closed) }},
	}
	ofAccept = acceptRows("", "accept_")
	skipped  = newMetric("accept_skipped_connections_total", skippedHelp, "reason")

	ofZeroCopy = rows[zerocopy.Stats]{
		{newMetric("writev_bytes_total", "Bytes written by writev"),
			func(s *zerocopy.Stats) float64 { return float64(s.WritevBytes) }},
		{newMetric("writev_calls_total", "System calls of writev"),
			func(s *zerocopy.Stats) float64 { return float64(s.WritevCalls) }},
		{newMetric("pipes_open", "Pipes to splice through that are open"),
			func(s *zerocopy.Stats) float64 { return float64(s.PipesOpen) }},
		{newMetric("pipes_idle", "Pipes to splice through that are open and unused"),
			func(s *zerocopy.Stats) float64 { return float64(s.PipesIdle) }},
	}
	moved = newMetric("moved_bytes_total",
		"Bytes that io.Copy and http.ServeContent moved, by their path: sendfile, splice, or copy, through memory", "path")

	ofPool = rows[pool.Stats]{
		{newMetric("pool_gets_total", "Buffers handed out by the pool"),
			func(s *pool.Stats) float64 { return float64(s.Gets) }},
		{newMetric("pool_misses_total", "Buffers handed out for which memory was allocated"),
			func(s *pool.Stats) float64 { return float64(s.Misses) }},
		{newMetric("pool_leaked_buffers_total", "Buffers that the garbage collector took while they were in use"),
			func(s *pool.Stats) float64 { return float64(s.Leaked) }},
		{newMetric("pool_foreign_slices_total", "Slices given to the pool that can't be its own"),
			func(s *pool.Stats) float64 { return float64(s.Foreign) }},
		{newMetric("pool_buffers_in_use", "Buffers handed out and not released"),
			func(s *pool.Stats) float64 { return float64(s.BuffersInUse) }},
		{newMetric("pool_in_use_bytes", "Capacity of the buffers handed out and not released"),
			func(s *pool.Stats) float64 { return float64(s.BytesInUse) }},
		{newMetric("pool_kept_bytes", "Capacity of the released buffers that the pool keeps"),
			func(s *pool.Stats) float64 { return float64(s.BytesKept) }},
		{newMetric("pool_kept_limit_bytes", "The most that the pool keeps; 0 is for as much as the garbage collector leaves"),
			func(s *pool.Stats) float64 { return float64(s.KeptBytesMax) }},
	}

	ofListener = rows[percore.ListenerStats]{
		{newMetric("listener_sockets", "Listening sockets", "network", "address"),
			func(l *percore.ListenerStats) float64 { return float64(l.Sockets) }},
		{newMetric("listener_open_connections", "Connections that the listener has accepted and that are open", "network", "address"),
			func(l *percore.ListenerStats) float64 { return float64(l.Conns) }},
		{newMetric("listener_connections_limit", "ListenConfig.MaxConns; 0 is for no limit", "network", "address"),
			func(l *percore.ListenerStats) float64 { return float64(l.MaxConns) }},
		{newMetric("listener_full", "Whether Accept waits for a place, because MaxConns connections are open and none can be closed for a client (1)", "network", "address"),
			func(l *percore.ListenerStats) float64 { return ofBool(l.Full) }},
		{newMetric("listener_awaiting_header_connections", "Connections whose PROXY header is awaited", "network", "address"),
			func(l *percore.ListenerStats) float64 { return float64(l.AwaitingHeader) }},
	}
	ofListenerAccept = acceptRows("listener_", "listener_", "network", "address")
	listenerSkipped  = newMetric("listener_skipped_connections_total", skippedHelp, "network", "address", "reason")

	groupLoops = newMetric("group_loops", "Loops of a group, in use or not", "group", "strategy")

	ofLoop = rows[loop.Counts]{
		{newMetric("loop_descriptors", "Descriptors that the loop watches", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.Descriptors) }},
		{newMetric("loop_registered_descriptors_total", "Descriptors that the loop was given", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.Registered) }},
		{newMetric("loop_wakeups_total", "Times that the loop was woken from waiting", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.Wakeups) }},
		{newMetric("loop_events_total", "Readiness events that the loop took from the kernel", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.Events) }},
		{newMetric("loop_deadlines_total", "Deadlines that came while they were set", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.Deadlines) }},
		{newMetric("loop_callback_seconds_total", "Time that callbacks and tasks kept the loop from its events", "group", "loop"),
			func(n *loop.Counts) float64 { return n.CallbackTime.Seconds() }},
		{newMetric("loop_longest_pass_seconds", "The longest time of callbacks and tasks in one pass", "group", "loop"),
			func(n *loop.Counts) float64 { return n.LongestPass.Seconds() }},
		{newMetric("loop_slow_passes_total", "Passes whose callbacks and tasks took 10 ms or more", "group", "loop"),
			func(n *loop.Counts) float64 { return float64(n.SlowPasses) }},
	}
)

// ofBool returns 1 for true.
func ofBool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// acceptRows are the metrics of all listeners, or of each listener. Names that clearly refer to
// accepted connections need less of a prefix.
func acceptRows(accepted, prefix string, labels ...string) rows[percore.AcceptStats] {
	return rows[percore.AcceptStats]{
		{newMetric(accepted+"accepted_connections_total", "Connections that were accepted", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.Accepted) }},
		{newMetric(accepted+"adopted_connections_total", "Connections that were taken over from another process", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.Adopted) }},
		{newMetric(prefix+"backoffs_total", "Times that Accept waited because descriptors or memory were lacking", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.Backoffs) }},
		{newMetric(prefix+"limit_waits_total", "Times that Accept began to wait because MaxConns connections were open", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.LimitWaits) }},
		{newMetric(prefix+"made_room_total", "Connections that were closed between two requests because MaxConns were open and a client waited", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.MadeRoom) }},
		{newMetric(prefix+"refused_connections_total", "Connections that OnAccept did not want", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.Refused) }},
		{newMetric(prefix+"bad_headers_total", "Connections that were closed because of their PROXY header", labels...),
			func(a *percore.AcceptStats) float64 { return float64(a.BadHeaders) }},
	}
}

const skippedHelp = "Connections that were lost before Accept returned them: the peer had gone (aborted), a protocol error, a network error"

func (r rows[T]) metrics() (all []metric) {
	for _, row := range r {
		all = append(all, row.metric)
	}
	return all
}

// fixed returns the metrics that every program has.
func fixed() []metric {
	return slices.Concat([]metric{buildInfo, skipped, moved, listenerSkipped, groupLoops},
		ofProcess.metrics(), ofAccept.metrics(), ofZeroCopy.metrics(), ofPool.metrics(),
		ofListener.metrics(), ofListenerAccept.metrics(), ofLoop.metrics())
}

// samplesOf returns the values of all metrics.
func samplesOf(s percore.Stats) []sample {
	b := batch{index: make(map[string]int)}
	b.add(buildInfo, 1, slices.Clone(buildLabels())...)
	ofProcess.addTo(&b, &s)
	ofAccept.addTo(&b, &s.Accept)
	b.addSkipped(skipped, s.Accept)
	ofZeroCopy.addTo(&b, &s.ZeroCopy)
	b.add(moved, float64(s.ZeroCopy.SendfileBytes), "sendfile")
	b.add(moved, float64(s.ZeroCopy.SpliceBytes), "splice")
	b.add(moved, float64(s.ZeroCopy.CopiedBytes), "copy")
	ofPool.addTo(&b, &s.Pool)
	for _, l := range s.Listeners {
		ofListener.addTo(&b, &l, l.Network, l.Address)
		ofListenerAccept.addTo(&b, &l.AcceptStats, l.Network, l.Address)
		b.addSkipped(listenerSkipped, l.AcceptStats, l.Network, l.Address)
	}
	for _, g := range s.Loops.Groups {
		b.add(groupLoops, float64(g.Loops), g.Group, g.Strategy)
		for _, l := range g.PerLoop {
			ofLoop.addTo(&b, &l.Counts, g.Group, strconv.Itoa(l.Loop))
		}
	}
	for _, a := range s.Adapters {
		for _, f := range a.Metrics {
			if m := ofAdapter(a.Adapter, f); f.Label == "" {
				b.add(m, f.Value)
			} else {
				b.add(m, f.Value, f.Of)
			}
		}
	}
	return b.samples
}

// batch holds the samples of one collection. It adds up samples of the same metric with the same
// labels: otherwise Prometheus refuses all metrics.
type batch struct {
	samples []sample
	index   map[string]int // in samples, by name and labels
}

type sample struct {
	metric
	value  float64
	labels []string
}

func (b *batch) add(m metric, value float64, labels ...string) {
	for i := range labels {
		// Prometheus requires UTF-8, but the path of a unix socket may be anything.
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	key := m.name + "\xff" + strings.Join(labels, "\xff")
	if i, ok := b.index[key]; ok {
		b.samples[i].value += value
		return
	}
	b.index[key] = len(b.samples)
	b.samples = append(b.samples, sample{m, value, labels})
}

// addTo adds the values of a thing that has these labels.
func (r rows[T]) addTo(b *batch, thing *T, labels ...string) {
	for _, row := range r {
		b.add(row.metric, row.value(thing), labels...)
	}
}

// addSkipped adds the skipped connections, by reason, to a metric with some other labels.
func (b *batch) addSkipped(m metric, s percore.AcceptStats, labels ...string) {
	n := len(labels)
	for reason, count := range map[string]uint64{"aborted": s.SkippedAborted, "protocol": s.SkippedProtocol, "network": s.SkippedNetwork} {
		b.add(m, float64(count), append(labels[:n:n], reason)...)
	}
}
