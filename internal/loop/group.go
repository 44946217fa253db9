package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Group is a set of loops that live and end together; the public Group says how. Its maker holds a
// reference until Close, and so does every registered descriptor. When the last reference is gone, the
// loops end. It is safe for concurrent use.
type Group struct {
	// immutable
	config     Config
	name       string // see enlist
	loops      []*Loop
	processors uint32        // when the group was made
	first      int           // the loops that Place fills in small portions are loops[:first]
	stopped    chan struct{} // closed when the last loop has ended

	// atomic
	refs    atomic.Int64 // owners plus registered descriptors; 0 is final
	running atomic.Int64 // loops that have started and not ended, plus 1 while refs is above 0
	next    atomic.Uint32

	closeOnce sync.Once
}

// How [Group.Place] fills loops.
const (
	// procsPerLoop is how many processors one loop keeps busy. Waking a goroutine costs a loop about
	// half a microsecond; the goroutine's own work, at least a recv and a send, costs ten times as
	// much. 4 leaves more than half of a loop's time.
	procsPerLoop = 4

	// portionMin is how many descriptors a loop gets before another loop starts. With 32 busy ones a
	// wake-up serves many at once; with two or three, wake-ups would cost too much.
	portionMin = 32

	// portionMax is how many a loop gets before more loops start than the processors
	// need: as many as its array of events may hold.
	portionMax = 1024
)

// NewGroup makes the loops that c asks for, and starts the first, or all with the strategy Thread.
func NewGroup(c Config) (*Group, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	var g *Group
	outside(func() { g, err = newGroup(c) })
	return g, err
}

func newGroup(c Config) (*Group, error) {
	g := &Group{config: c, stopped: make(chan struct{}), processors: uint32(runtime.GOMAXPROCS(0))}
	g.first = min(max(2, (runtime.GOMAXPROCS(0)+procsPerLoop-1)/procsPerLoop), c.Loops)
	g.refs.Store(1)
	g.running.Store(1)
	for i := range c.Loops {
		g.loops = append(g.loops, newLoop(g, i))
	}
	g.enlist()
	atOnce := g.loops[:1]
	if c.Strategy == Thread {
		atOnce = g.loops
	}
	for _, l := range atOnce {
		if err := l.start(); err != nil {
			g.Close()
			<-g.stopped
			return nil, err
		}
	}
	return g, nil
}

// Len returns the number of loops.
func (g *Group) Len() int { return len(g.loops) }

// Loop returns loop i, counted from 0.
func (g *Group) Loop(i int) *Loop { return g.loops[i] }

// Name returns the group's name, which no other group in use has.
func (g *Group) Name() string { return g.name }

// Strategy returns how the loops wait for events.
func (g *Group) Strategy() Strategy { return g.config.Strategy }

// Place returns the loop for one more descriptor. With the strategy Thread that is the least loaded
// one. With Nested, Place fills one loop after the other; the public Config has the table.
func (g *Group) Place() *Loop {
	if g.config.Strategy == Thread {
		return g.LeastLoaded()
	}
	return g.startedOr(g.fill())
}

func (g *Group) fill() *Loop {
	first, rest := g.loops[:g.first], g.loops[g.first:]
	if l := firstBelow(first, portionMin); l != nil {
		return l
	}
	if l := g.leastOf(first); l.Descriptors() < portionMax {
		return l
	}
	if l := firstBelow(rest, portionMax); l != nil {
		return l
	}
	return g.leastOf(g.loops)
}

// firstBelow returns the first loop with fewer descriptors, or nil.
func firstBelow(loops []*Loop, descriptors int) *Loop {
	for _, l := range loops {
		if l.Descriptors() < descriptors {
			return l
		}
	}
	return nil
}

// LeastLoaded returns the loop with the fewest registered descriptors. Among
// equals it goes round, so that a burst of registrations spreads out.
func (g *Group) LeastLoaded() *Loop { return g.startedOr(g.leastOf(g.loops)) }

func (g *Group) leastOf(loops []*Loop) *Loop {
	n := uint32(len(loops))
	start := g.next.Add(1)
	best := loops[start%n]
	for i := uint32(1); i < n; i++ {
		if l := loops[(start+i)%n]; l.Descriptors() < best.Descriptors() {
			best = l
		}
	}
	return best
}

// startedOr starts l and returns it. If l can't start, it returns the least loaded loop that has
// started, which needs no more descriptors.
func (g *Group) startedOr(l *Loop) *Loop {
	if l.start() == nil {
		return l
	}
	best := g.loops[0]
	for _, l := range g.loops {
		if l.started.Load() && l.Descriptors() < best.Descriptors() {
			best = l
		}
	}
	return best
}

// Retain takes a reference. It reports false if the group has ended or is about to.
func (g *Group) Retain() bool {
	for {
		n := g.refs.Load()
		if n == 0 {
			return false
		}
		if g.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release gives up a reference. After the last one the loops stop; Release does not wait for that.
func (g *Group) Release() {
	switch n := g.refs.Add(-1); {
	case n == 0:
		for _, l := range g.loops {
			if l.started.Load() {
				l.stop()
			}
		}
		g.loopEnded()
	case n < 0:
		panic("loop: Group.Release without a Retain")
	}
}

// loopEnded counts the end of a loop, or of the group itself. With the last one the group has ended.
func (g *Group) loopEnded() {
	if g.running.Add(-1) == 0 {
		g.delist()
		close(g.stopped)
	}
}

// Close gives up the maker's reference. Calling it again does nothing.
func (g *Group) Close() { g.closeOnce.Do(g.Release) }

// Stopped returns a channel that is closed when all loops have ended and have given everything back.
func (g *Group) Stopped() <-chan struct{} { return g.stopped }
