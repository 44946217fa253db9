package loop

import (
	"time"

	engine "github.com/percore/percore/internal/loop"
)

// Counts is the work of a loop, or the sums over several loops. All fields except Descriptors only
// grow. They are read one after the other, not at one instant, and reading them holds up neither a
// loop nor a connection.
//
// The more events there are for each wake-up, the less an event costs.
//
// A pass handles a batch of events and the tasks that were submitted in the meantime. The loop runs
// readiness callbacks and tasks one after the other, and does nothing else until they return. The
// rest of a pass, which wakes goroutines, is not timed.
type Counts struct {
	Descriptors int    // connections now
	Registered  uint64 // connections ever; of these, Registered-Descriptors are gone
	Wakeups     uint64 // times a loop was woken from waiting
	Events      uint64 // readiness events taken from the kernel
	Deadlines   uint64 // deadlines that passed while they were set, except those set to a past time

	CallbackTime time.Duration // all the time that callbacks and tasks took
	LongestPass  time.Duration // the longest that callbacks and tasks of one pass took; for several loops, the longest of all
	SlowPasses   uint64        // passes whose callbacks and tasks took 10 ms or more
}

// LoopStats is the work of one loop since its group was made.
type LoopStats struct {
	Loop int // its index in the group
	Counts
}

// Stats is the work of a [Group]. If the load is spread unevenly, the connections and events of its
// loops show it. It is intended that later loops of a group have no connections: see [Config].
type Stats struct {
	Group    string // the group's name: see [Config]
	Strategy string // "nested" or "thread"
	Loops    int    // loops in the group, started or not
	Counts          // sums over the group's loops

	PerLoop []LoopStats // of the loops that have started, in order of their index
}

// ProcessStats is the work of all groups of the process; percore.ReadStats returns it.
type ProcessStats struct {
	Counts         // sums over all groups, ended ones included
	Groups []Stats // the groups that have not ended, oldest first
}

// Stats returns the group's work.
func (g *Group) Stats() Stats {
	of := (*engine.Group)(g)
	s := Stats{Group: of.Name(), Strategy: of.Strategy().String(), Loops: of.Len()}
	var sums engine.Counts
	of.EachCounts(func(loop int, n engine.Counts) {
		s.PerLoop = append(s.PerLoop, LoopStats{Loop: loop, Counts: Counts(n)})
		sums.Add(n)
	})
	s.Counts = Counts(sums)
	return s
}
