package percore

import (
	"cmp"
	"net"
	"slices"
	"sync"
)

// The names in this file are for adapters: packages that serve percore's connections in ways of their
// own. Programs only read their metrics.

// WaitingConn is a connection that waits for a request, as an adapter gives it to another process
// with a method HandOver, such as that of httpadapter's Server.
type WaitingConn struct {
	// Conn is a *[Conn].
	Conn net.Conn

	// Served says that the connection has had a request, so the other process lets it wait as an idle
	// connection, not as a new one.
	Served bool
}

// AdapterStats are the metrics of one adapter: sums over all its servers in the process.
type AdapterStats struct {
	// Adapter is "http", "http2", "http2_client", "client", "grpc", "grpc_client", "reactor",
	// "websocket", "handover", "tls", "admission", "tcp", or another's.
	Adapter string
	Metrics []Metric
}

// Metric is one metric of an adapter. Its name follows Prometheus's conventions
// (https://prometheus.io/docs/practices/naming), because metrics/prometheus exports it unchanged,
// after "percore_" and the adapter's name:
//
//   - lower case, words joined by "_", with the unit last, in base units: "_seconds", "_bytes".
//   - A name that ends in "_total" is a counter: it never decreases while the process lives, not even
//     when a server ends. Any other is a gauge. No gauge has the name of a counter without its
//     "_total": to OpenMetrics they are the same.
//   - All metrics of one name have the same label, or no label, and are next to each other. They exist
//     from the start, with the value 0.
type Metric struct {
	Name  string
	Help  string // a line for people, without a full stop
	Label string // the label of metrics that share a name; "" if there is only one
	Of    string // the label's value
	Value float64
}

// RegisterAdapter makes ReadStats call read for the metrics of an adapter: one from this project, or
// a package of your own that serves percore's connections in its own way. The name is one lower-case
// word.
//
// read may be called by any goroutine at any time. It must be quick and take no lock that a request
// waits for. RegisterAdapter is for init functions: an adapter can't be removed.
func RegisterAdapter(name string, read func() []Metric) {
	if name == "" || read == nil {
		panic("percore: RegisterAdapter was called without a name, or with a nil function")
	}
	adapters.Lock()
	defer adapters.Unlock()
	adapters.registered = append(adapters.registered, adapter{name, read})
	slices.SortStableFunc(adapters.registered, func(a, b adapter) int { return cmp.Compare(a.name, b.name) })
}

// adapters are the adapters that are linked into the program, by name.
var adapters struct {
	sync.Mutex
	registered []adapter
}

type adapter struct {
	name string
	read func() []Metric
}

func readAdapters() (all []AdapterStats) {
	adapters.Lock()
	registered := slices.Clone(adapters.registered)
	adapters.Unlock()
	for _, a := range registered {
		all = append(all, AdapterStats{Adapter: a.name, Metrics: a.read()})
	}
	return all
}
