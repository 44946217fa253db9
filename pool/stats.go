package pool

import (
	"fmt"

	"github.com/percore/percore/internal/invariants"
)

// Stats is what a Pool has done since New and what it holds. Counters that end in
// use, kept or max say how things stand; the others only grow.
type Stats struct {
	Gets     uint64 // buffers handed out by Get, GetBytes and Growable
	Misses   uint64 // Gets up to ClassBytesMax for which memory had to be allocated
	Oversize uint64 // Gets above ClassBytesMax, always allocated
	Releases uint64 // buffers that lost their last reference in Release or PutBytes
	Leaked   uint64 // buffers garbage-collected before that
	Foreign  uint64 // slices passed to PutBytes that the pool didn't know

	BuffersInUse int   // buffers with at least one reference; slices don't count
	BytesInUse   int64 // their capacity
	BytesKept    int64 // capacity of released buffers kept for later; growable ones aside
	BytesKeptMax int64 // never exceeded by BytesKept and the growable ones together
}

// Stats counts the buffers of the pool, which takes time in proportion to their
// number (some microseconds for a thousand), during which a Get that has to
// allocate waits; others don't. While buffers are being handed out and released,
// what is in use and kept need not stem from exactly the same moment.
//
// The bytes of released growable buffers are not in BytesKept, for bytebufferpool
// holds them and tells nothing, but they are bounded along with it.
func (p *Pool) Stats() Stats {
	s := Stats{Foreign: p.foreign.Load(), BytesKeptMax: p.keptBytesMax}
	// All at once, lest a resident that moved its budget to another class while we
	// count there be counted twice.
	p.lockClasses()
	defer p.unlockClasses()
	for i := range p.classes {
		p.classes[i].addStatsLocked(&s)
	}
	for i := range oversizeClass {
		s.Misses += p.classes[i].mu.misses
	}
	s.Oversize = p.classes[oversizeClass].mu.misses
	s.Releases = s.Gets - s.Leaked - uint64(s.BuffersInUse)
	s.BytesKept += p.overflow.taken.Load()
	if invariants.Enabled && (s.BytesKept > s.BytesKeptMax || s.BytesInUse < 0) {
		panic(fmt.Sprintf("pool: invariant violated: %+v", s))
	}
	return s
}

// addStatsLocked adds what the class counted and what its buffers carry, except
// for what overflow buffers keep, which their budget knows exactly.
func (c *class) addStatsLocked(s *Stats) {
	s.Gets += c.mu.gets
	s.Leaked += c.mu.leaked
	c.eachLocked(func(rec *record) {
		state := rec.state.Load()
		s.Gets += state / oneGet
		switch {
		case uint32(state) > 0:
			s.BuffersInUse++
			s.BytesInUse += rec.bytes.Load()
		case rec.resident && c != &c.pool.classes[growableClass]:
			s.BytesKept += int64(c.bytes)
		}
	})
}

// ReadStats is Default().Stats().
func ReadStats() Stats { return shared.Stats() }

func (p *Pool) lockClasses() {
	for i := range p.classes {
		p.classes[i].mu.Lock()
	}
}

func (p *Pool) unlockClasses() {
	for i := range p.classes {
		p.classes[i].mu.Unlock()
	}
}
