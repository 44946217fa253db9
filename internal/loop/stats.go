package loop

import (
	"context"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// Counts is the work of a loop, or the sums over several. The public Counts has the same fields, and
// says what they mean.
type Counts struct {
	Descriptors int
	Registered  uint64
	Wakeups     uint64
	Events      uint64
	Deadlines   uint64

	CallbackTime time.Duration // of all callbacks and tasks
	LongestPass  time.Duration // of them in one pass, which is a batch of events and the tasks submitted meanwhile
	SlowPasses   uint64        // whose callbacks and tasks took SlowPass or more
}

// SlowPass is the time from which a pass counts as slow. All connections of a loop wait for as
// long, and Go's scheduler gives a goroutine no more at a stretch.
const SlowPass = 10 * time.Millisecond

// groups are the groups of the process. The lock is for making, ending and counting groups.
var groups struct {
	sync.Mutex
	all   []*Group // whose loops have not ended
	ended Counts   // sums over the others
}

// ReadStats returns the sums over all groups, ended ones included, and those that have not ended, in
// order of their making.
func ReadStats() (sums Counts, all []*Group) {
	groups.Lock()
	defer groups.Unlock()
	sums = groups.ended
	for _, g := range groups.all {
		sums.Add(g.Counts())
		if !g.over() {
			all = append(all, g)
		}
	}
	return sums, all
}

// EachCounts calls do with the work of each loop that has started, in order of their index.
func (g *Group) EachCounts(do func(loop int, n Counts)) {
	for i, l := range g.loops {
		if l.started.Load() {
			do(i, l.counts())
		}
	}
}

// Counts returns the sums over the group's loops.
func (g *Group) Counts() (sums Counts) {
	g.EachCounts(func(_ int, n Counts) { sums.Add(n) })
	return sums
}

// over reports whether the group has lost its last reference. Its loops may still be ending.
func (g *Group) over() bool { return g.refs.Load() == 0 }

// enlist names g and counts it from now on. Names are unique among the groups that are not over,
// so that figures of two groups don't mix.
func (g *Group) enlist() {
	groups.Lock()
	defer groups.Unlock()
	base := g.config.Name
	if base == "" {
		base = "group"
	}
	g.name = base
	for i := 2; slices.ContainsFunc(groups.all, func(o *Group) bool { return o.name == g.name && !o.over() }); i++ {
		g.name = base + "-" + strconv.Itoa(i)
	}
	groups.all = append(groups.all, g)
}

// delist is for a group whose loops have ended.
func (g *Group) delist() {
	groups.Lock()
	defer groups.Unlock()
	groups.ended.Add(g.Counts())
	groups.all = slices.DeleteFunc(groups.all, func(o *Group) bool { return o == g })
}

// Add adds the counts of other loops.
func (c *Counts) Add(o Counts) {
	c.Descriptors += o.Descriptors
	c.Registered += o.Registered
	c.Wakeups += o.Wakeups
	c.Events += o.Events
	c.Deadlines += o.Deadlines
	c.CallbackTime += o.CallbackTime
	c.LongestPass = max(c.LongestPass, o.LongestPass)
	c.SlowPasses += o.SlowPasses
}

// counts returns the loop's work. Descriptors are read before Registered, so that they are never more.
func (l *Loop) counts() Counts {
	return Counts{
		Descriptors:  l.Descriptors(),
		Registered:   l.registered.Load(),
		Wakeups:      l.wakeups.Load(),
		Events:       l.events.Load(),
		Deadlines:    l.timers.fired.Load(),
		CallbackTime: time.Duration(l.calls.time.Load()),
		LongestPass:  time.Duration(l.calls.longest.Load()),
		SlowPasses:   l.calls.slow.Load(),
	}
}

// beginCalls is called before each callback and each task, on the loop's goroutine.
//
// With the first of a pass the goroutine loses its profiler labels until the end of the pass, or
// goroutines that callbacks start would inherit them.
func (l *Loop) beginCalls() {
	if l.calls.began.Load() == 0 {
		l.calls.began.Store(monotime.Now())
		pprof.SetGoroutineLabels(context.Background())
	}
}

// endCalls is called at the end of each pass, on the loop's goroutine.
func (l *Loop) endCalls() {
	began := l.calls.began.Load()
	if began == 0 {
		return
	}
	took := monotime.Now() - began
	l.calls.began.Store(0)
	l.calls.time.Add(took)
	if took > l.calls.longest.Load() {
		l.calls.longest.Store(took)
	}
	if took >= int64(SlowPass) {
		l.calls.slow.Add(1)
	}
	pprof.SetGoroutineLabels(l.labels)
}

// profilerLabels are the labels of the loop's goroutine: in a CPU profile or a dump of goroutines
// they tell the loops apart. Without labels of its own it would have those of the goroutine that
// was the first to need the loop.
func (l *Loop) profilerLabels() context.Context {
	return pprof.WithLabels(context.Background(),
		pprof.Labels("percore_group", l.group.name, "percore_loop", strconv.Itoa(l.index)))
}
