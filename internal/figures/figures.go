// Package figures is how the adapters, which import percore, get their figures into
// percore.ReadStats, which can't import them: each registers a function that reads its figures
// when the program starts.
//
// The names go by Prometheus' conventions (https://prometheus.io/docs/practices/naming), because
// metrics/prometheus exports them as they are, behind "percore_" and the adapter's name:
//
//   - lower case, words joined by "_", with the unit last, in base units: "_seconds", "_bytes".
//   - A name that ends in "_total" is a counter: it never goes back while the process lives, also
//     when a server ends. Any other is a gauge. No gauge has
//     the name of a counter without its "_total": to OpenMetrics that is the same.
//   - All figures of one name have the same label, or none, and are next to each other. They are
//     there from the start, with the value 0.
//
// An adapter's figures are sums over all its servers in the process.
package figures

import (
	"cmp"
	"slices"
	"sync"
)

// Figure is one number.
type Figure struct {
	Name  string // as the package comment says
	Help  string // a line for people, without a full stop
	Label string // what tells figures of the same name apart; "" if there is only one
	Of    string // the label's value
	Value float64
}

// Adapter is the figures of one adapter.
type Adapter struct {
	Name    string // a word: "http", "reactor"
	Figures []Figure
}

var registered struct {
	sync.Mutex
	sources []source
}

type source struct {
	adapter string
	read    func() []Figure
}

// Register has Read call read for the figures of an adapter, from any goroutine and at any time.
// read must be quick and take no lock for which a request waits. It is for init functions: there is
// no way back.
func Register(adapter string, read func() []Figure) {
	registered.Lock()
	defer registered.Unlock()
	registered.sources = append(registered.sources, source{adapter, read})
	slices.SortStableFunc(registered.sources, func(a, b source) int { return cmp.Compare(a.adapter, b.adapter) })
}

// Read returns the figures of the adapters that the program has linked in, by name.
func Read() []Adapter {
	registered.Lock()
	sources := slices.Clone(registered.sources)
	registered.Unlock()
	adapters := make([]Adapter, 0, len(sources))
	for _, s := range sources {
		adapters = append(adapters, Adapter{s.adapter, s.read()})
	}
	return adapters
}
