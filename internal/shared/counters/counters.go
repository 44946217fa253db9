// Package counters counts what servers and clients do, on all processors at once, and for the whole
// process.
package counters

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// procsPerCell is how many processors write to one Cell, and how many one set of workers keeps busy.
// Each request takes a set's lock twice, for some tens of nanoseconds. The more sets there are, the
// fewer connections each finds queued at once.
const procsPerCell = 4

// Cells returns how many Cells, and sets of workers, a server should have.
func Cells() int { return (runtime.GOMAXPROCS(0) + procsPerCell - 1) / procsPerCell }

// Cell holds the counters of some connections of a server. The values of C are its indexes. All methods
// are safe for concurrent use.
type Cell[C ~uint8] []atomic.Int64

// Add adds by to a counter. It doesn't block.
func (n Cell[C]) Add(c C, by int64) { n[c].Add(by) }

// Load returns the value of a counter.
func (n Cell[C]) Load(c C) int64 { return n[c].Load() }

// A Set is the counters of a server, in cells. They are apart from the server, which they outlive:
// see Register.
type Set[C ~uint8] struct {
	Cells []Cell[C] // immutable
	kinds C

	last atomic.Uint32 // which Next has returned
}

// NewSet makes the counters below kinds, in so many cells that share no cache line.
func NewSet[C ~uint8](cells int, kinds C) *Set[C] {
	const perLine = 8
	stride := int(kinds) + perLine
	all := make([]atomic.Int64, cells*stride)
	n := &Set[C]{Cells: make([]Cell[C], cells), kinds: kinds}
	for i := range n.Cells {
		n.Cells[i] = all[i*stride:][:kinds:kinds]
	}
	return n
}

// Next returns the cells in turn, so that each has few owners.
func (n *Set[C]) Next() *Cell[C] {
	return &n.Cells[int(n.last.Add(1)%uint32(len(n.Cells)))]
}

// AddTo adds the counters to their sums. It reads them in their order, one after the other: if ends
// are counted after their beginnings and come first, no difference of the two is below 0.
func (n *Set[C]) AddTo(sums []int64) {
	for c := range sums {
		for _, cell := range n.Cells {
			sums[c] += cell[c].Load()
		}
	}
}

// Sums returns the sums over the cells.
func (n *Set[C]) Sums() []int64 {
	sums := make([]int64, n.kinds)
	n.AddTo(sums)
	return sums
}

// Register has the counters of all servers of a kind in the process. A server may serve again, so its
// counters stay until the garbage collector has taken it. Then they are folded into one sum. All methods
// are safe for concurrent use.
type Register[C ~uint8] struct {
	kinds C // immutable

	mu   sync.Mutex
	of   map[*Set[C]]struct{}
	gone []int64
}

// NewRegister makes a register for counters below kinds.
func NewRegister[C ~uint8](kinds C) *Register[C] {
	return &Register[C]{kinds: kinds, of: make(map[*Set[C]]struct{}), gone: make([]int64, kinds)}
}

// Enlist adds the counters of a server to r. Nothing that n refers to may refer to the server.
func Enlist[S any, C ~uint8](r *Register[C], server *S, n *Set[C]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[n] = struct{}{}
	runtime.AddCleanup(server, r.delist, n)
}

// delist folds the counters of a server that the garbage collector has taken, and which so has no
// connections.
func (r *Register[C]) delist(n *Set[C]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n.AddTo(r.gone)
	delete(r.of, n)
}

// Sums returns the sums over all servers.
func (r *Register[C]) Sums() []int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	sums := append([]int64(nil), r.gone...)
	for n := range r.of {
		n.AddTo(sums)
	}
	return sums
}
