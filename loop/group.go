package loop

import (
	"sync"
	"sync/atomic"
)

// Group is a set of loops that live and end together. It is safe for concurrent
// use.
//
// A group ends by itself when nobody needs it any more: the one who made it
// holds a reference, given up by Close, and so does every registered
// descriptor. With the last one the loops' goroutines return and their
// descriptors are closed.
type Group struct {
	// immutable
	config  Config
	loops   []*Loop
	stopped chan struct{} // closed when the last loop has ended

	// atomic
	refs atomic.Int64 // owners plus registered descriptors; 0 is final
	next atomic.Uint32

	closeOnce sync.Once
}

// NewGroup starts the loops that c asks for. It fails if c makes no sense, when
// the process is out of descriptors, and on anything but Linux. The caller owns
// one reference: call Close when no new descriptors will be registered.
func NewGroup(c Config) (*Group, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	g := &Group{config: c, stopped: make(chan struct{})}
	for i := range c.Loops {
		l, err := newLoop(g, i)
		if err != nil {
			for _, l := range g.loops {
				l.poller.close()
			}
			return nil, err
		}
		g.loops = append(g.loops, l)
	}
	g.refs.Store(1)
	var running sync.WaitGroup
	for _, l := range g.loops {
		running.Go(l.run)
	}
	go func() {
		running.Wait()
		close(g.stopped)
	}()
	return g, nil
}

// Len returns the number of loops.
func (g *Group) Len() int { return len(g.loops) }

// Loop returns loop i, counted from 0.
func (g *Group) Loop(i int) *Loop { return g.loops[i] }

// LeastLoaded returns the loop with the fewest registered descriptors. Among
// equals it goes round, so that a burst of registrations spreads out.
func (g *Group) LeastLoaded() *Loop {
	n := uint32(len(g.loops))
	start := g.next.Add(1)
	best := g.loops[start%n]
	for i := uint32(1); i < n; i++ {
		if l := g.loops[(start+i)%n]; l.Descriptors() < best.Descriptors() {
			best = l
		}
	}
	return best
}

// Stats returns the sums over all loops.
func (g *Group) Stats() Stats {
	s := Stats{Loops: len(g.loops)}
	for _, l := range g.loops {
		s.Descriptors += l.Descriptors()
		s.Wakeups += l.wakeups.Load()
		s.Events += l.events.Load()
		s.Stale += l.stale.Load()
		s.Tasks += l.tasks.run.Load()
	}
	return s
}

// Retain takes a reference, so that the group goes on until Release. It reports
// false if the group has ended or is about to.
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

// Release gives up a reference taken by Retain. With the last one the loops
// stop, soon after; Release does not wait for it.
func (g *Group) Release() {
	switch n := g.refs.Add(-1); {
	case n == 0:
		for _, l := range g.loops {
			l.stop()
		}
	case n < 0:
		panic("loop: Group.Release without a Retain")
	}
}

// Close gives up the maker's reference. The loops go on for as long as
// descriptors are registered. Calling it again does nothing.
func (g *Group) Close() { g.closeOnce.Do(g.Release) }

// Stopped returns a channel that is closed when all loops have ended and
// everything they held is given back.
func (g *Group) Stopped() <-chan struct{} { return g.stopped }
