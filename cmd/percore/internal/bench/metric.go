package bench

import "slices"

// Metric is one kind of figure in a sample.
type Metric struct {
	Name  string // with the unit, as benchstat reads it: "p99-ns"
	Label string // for people
	Unit  Unit
}

// HigherIsBetter reports whether the higher of two figures is the better one.
func (m Metric) HigherIsBetter() bool { return m.Name == MetricRate || m.Name == MetricFast }

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

// metrics lists every metric, in the order of printing.
var metrics []Metric

// define adds a metric, and returns its name.
func define(name, label string, unit Unit) string {
	metrics = append(metrics, Metric{name, label, unit})
	return name
}

// The names of the metrics. Figures of the server were counted by the operating system for its process,
// or by its Go runtime.
var (
	MetricCPU    = define("cpu-ns/op", "cpu/op", Nanoseconds) // of the server, user and system
	MetricUser   = define("user-ns/op", "  user", Nanoseconds)
	MetricSystem = define("sys-ns/op", "  system", Nanoseconds)
	MetricRate   = define("ops/s", "ops/s", PerSecond)
	MetricP50    = define("p50-ns", "p50", Nanoseconds) // these five: as seen by the load generator
	MetricP90    = define("p90-ns", "p90", Nanoseconds)
	MetricP99    = define("p99-ns", "p99", Nanoseconds)
	MetricP999   = define("p99.9-ns", "p99.9", Nanoseconds)
	MetricMax    = define("max-ns", "max", Nanoseconds)

	// For idle connections, of the server.
	MetricResident   = define("rss-B/conn", "resident/conn", Bytes)
	MetricHeap       = define("heap-B/conn", "heap/conn", Bytes)
	MetricStack      = define("stack-B/conn", "stack/conn", Bytes)
	MetricGoroutines = define("goroutines/conn", "goroutines/conn", Count)

	MetricSwitch       = define("csw/op", "switches/op", Count) // context switches of the server, of both kinds
	MetricAllocs       = define("allocs/op", "allocs/op", Count)
	MetricAlloc        = define("B/op", "allocated/op", Bytes)
	MetricInstructions = define("instructions/op", "instructions/op", PerSecond) // in user space; with Config.Counts
	MetricCalls        = define("syscalls/op", "system calls/op", Count)         // the same, and those below
	MetricReads        = define("reads/op", "  reads", Count)                    // and receives
	MetricWrites       = define("writes/op", "  writes", Count)                  // and sends
	MetricPolls        = define("polls/op", "  polls", Count)                    // of epoll, and a worker's wait for its socket
	MetricFutexes      = define("futexes/op", "  futex", Count)                  // with which the Go runtime's threads sleep and wake
	MetricFast         = define("fastpath/op", "fast path/op", Count)            // requests that httpadapter served over HTTP/1
	MetricLoadCPU      = define("load-cpu-ns/op", "client cpu/op", Nanoseconds)
	MetricLateP99      = define("late-p99-ns", "client late p99", Nanoseconds) // of the load generator, in an open loop only
	MetricOther        = define("other-cpu-%", "other cpu", Percent)           // of the machine, used by all other processes
)

// Metrics returns every metric, in the order of printing.
func Metrics() []Metric { return slices.Clone(metrics) }
