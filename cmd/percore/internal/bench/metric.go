package bench

import "slices"

// Metric is one kind of figure in a sample.
type Metric struct {
	Name           string // with the unit, as benchstat reads it: "p99-ns"
	Label          string // for people
	Unit           Unit
	HigherIsBetter bool
}

// Unit says how a figure is to be printed.
type Unit uint8

// The units there are.
const (
	Nanoseconds Unit = iota
	PerSecond
	Count
	Bytes
	Percent
)

// The names of the metrics. Figures that are called the server's were accounted to its
// process by the operating system or by its Go runtime.
const (
	MetricCPU     = "cpu-ns/op"  // the server's, user and system
	MetricUser    = "user-ns/op" // the server's
	MetricSystem  = "sys-ns/op"  // the server's
	MetricRate    = "ops/s"
	MetricP50     = "p50-ns" // these five: as the load generator saw it
	MetricP90     = "p90-ns"
	MetricP99     = "p99-ns"
	MetricP999    = "p99.9-ns"
	MetricMax     = "max-ns"
	MetricSwitch  = "csw/op"         // the server's context switches of both kinds
	MetricAllocs  = "allocs/op"      // the server's
	MetricAlloc   = "B/op"           // the server's
	MetricMoves   = "moves/1000op"   // moves of the server's threads to another processor
	MetricLoops   = "loops"          // of the engine's, those that have connections
	MetricWakeups = "wakeups/op"     // of the engine's loops
	MetricEvents  = "events/wakeup"  // of the engine's loops
	MetricUnparks = "unparks/op"     // connections that httpadapter had parked
	MetricFast    = "fastpath/op"    // requests that httpadapter's fast path served
	MetricLoadCPU = "load-cpu-ns/op" // the load generator's
	MetricOther   = "other-cpu-%"    // of the machine: used by none of the processes

	// After an open loop only.
	MetricServiceP99 = "service-p99-ns" // latency counted from when an operation was really begun
	MetricLateP99    = "late-p99-ns"    // how late the generator itself was

	// Of idle connections.
	MetricResident   = "rss-B/conn"
	MetricHeap       = "heap-B/conn"
	MetricStack      = "stack-B/conn"
	MetricGoroutines = "goroutines/conn"
)

// metrics is every metric, in the order in which they are printed.
var metrics = []Metric{
	{MetricCPU, "cpu/op", Nanoseconds, false},
	{MetricUser, "  user", Nanoseconds, false},
	{MetricSystem, "  system", Nanoseconds, false},
	{MetricRate, "ops/s", PerSecond, true},
	{MetricP50, "p50", Nanoseconds, false},
	{MetricP90, "p90", Nanoseconds, false},
	{MetricP99, "p99", Nanoseconds, false},
	{MetricP999, "p99.9", Nanoseconds, false},
	{MetricMax, "max", Nanoseconds, false},
	{MetricServiceP99, "p99 uncorrected", Nanoseconds, false},
	{MetricResident, "resident/conn", Bytes, false},
	{MetricHeap, "heap/conn", Bytes, false},
	{MetricStack, "stack/conn", Bytes, false},
	{MetricGoroutines, "goroutines/conn", Count, false},
	{MetricSwitch, "switches/op", Count, false},
	{MetricAllocs, "allocs/op", Count, false},
	{MetricAlloc, "allocated/op", Bytes, false},
	{MetricMoves, "moves/1000 op", Count, false},
	{MetricLoops, "loops", Count, false},
	{MetricWakeups, "wake-ups/op", Count, false},
	{MetricEvents, "events/wake-up", Count, true},
	{MetricUnparks, "un-parked/op", Count, false},
	{MetricFast, "fast path/op", Count, true},
	{MetricLoadCPU, "client cpu/op", Nanoseconds, false},
	{MetricLateP99, "client late p99", Nanoseconds, false},
	{MetricOther, "other cpu", Percent, false},
}

// Metrics returns every metric there is, in the order in which they are printed.
func Metrics() []Metric { return slices.Clone(metrics) }

// MetricNamed returns the metric of that name.
func MetricNamed(name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}
