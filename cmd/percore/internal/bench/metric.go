package bench

import "slices"

// Metric is one kind of figure in a sample.
type Metric struct {
	Name           string // with the unit, as benchstat reads it: "p99-ns"
	Label          string // for people
	Unit           Unit
	HigherIsBetter bool
}

// Unit says how to print a figure.
type Unit uint8

// The units of figures.
const (
	Nanoseconds Unit = iota
	PerSecond
	Count
	Bytes
	Percent
)

// The names of the metrics. Figures "of the server" were counted by the operating system for its
// process, or by its Go runtime.
const (
	MetricCPU          = "cpu-ns/op"  // of the server, user and system
	MetricUser         = "user-ns/op" // of the server
	MetricSystem       = "sys-ns/op"  // of the server
	MetricRate         = "ops/s"
	MetricP50          = "p50-ns" // these five: as seen by the load generator
	MetricP90          = "p90-ns"
	MetricP99          = "p99-ns"
	MetricP999         = "p99.9-ns"
	MetricMax          = "max-ns"
	MetricSwitch       = "csw/op"          // context switches of the server, of both kinds
	MetricAllocs       = "allocs/op"       // of the server
	MetricAlloc        = "B/op"            // of the server
	MetricCalls        = "syscalls/op"     // of the server: these six are there with Config.Counts
	MetricReads        = "reads/op"        // reads and receives among them
	MetricWrites       = "writes/op"       // writes and sends
	MetricPolls        = "polls/op"        // of epoll, and a worker's wait for its socket
	MetricFutexes      = "futexes/op"      // the Go runtime's threads sleep and wake each other with it
	MetricInstructions = "instructions/op" // in user space
	MetricFast         = "fastpath/op"     // requests that httpadapter served over HTTP/1
	MetricLoadCPU      = "load-cpu-ns/op"  // of the load generator
	MetricLateP99      = "late-p99-ns"     // how late the load generator itself was, in an open loop only
	MetricOther        = "other-cpu-%"     // of the machine, used by all other processes

	// For idle connections.
	MetricResident   = "rss-B/conn"
	MetricHeap       = "heap-B/conn"
	MetricStack      = "stack-B/conn"
	MetricGoroutines = "goroutines/conn"
)

// metrics lists every metric, in the order of printing.
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
	{MetricResident, "resident/conn", Bytes, false},
	{MetricHeap, "heap/conn", Bytes, false},
	{MetricStack, "stack/conn", Bytes, false},
	{MetricGoroutines, "goroutines/conn", Count, false},
	{MetricSwitch, "switches/op", Count, false},
	{MetricAllocs, "allocs/op", Count, false},
	{MetricAlloc, "allocated/op", Bytes, false},
	{MetricInstructions, "instructions/op", PerSecond, false},
	{MetricCalls, "system calls/op", Count, false},
	{MetricReads, "  reads", Count, false},
	{MetricWrites, "  writes", Count, false},
	{MetricPolls, "  polls", Count, false},
	{MetricFutexes, "  futex", Count, false},
	{MetricFast, "fast path/op", Count, true},
	{MetricLoadCPU, "client cpu/op", Nanoseconds, false},
	{MetricLateP99, "client late p99", Nanoseconds, false},
	{MetricOther, "other cpu", Percent, false},
}

// Metrics returns every metric, in the order of printing.
func Metrics() []Metric { return slices.Clone(metrics) }

// MetricNamed returns the metric with that name.
func MetricNamed(name string) (Metric, bool) {
	i := slices.IndexFunc(metrics, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return metrics[i], true
}
