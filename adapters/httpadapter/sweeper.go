package httpadapter

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// sweeper ends the Reads that have waited for a request for long enough, so that
// their connections are parked. Now and then it looks at all connections that
// net/http has. That costs a request neither a clock nor a deadline: a Read that
// begins to wait only notes the tick, and a busy connection is passed over.
//
// # When
//
// Time is counted in ticks, ticksToPark to the time after which a connection is to
// be parked, and read once per sweep. So the tick that a Read notes is old by up to
// the time between two sweeps, and the Read waits for less than its patience by as
// much.
//
//	waiting connections    patience             time to the next sweep
//	up to crowd            24 ticks, of which   8 ticks
//	                       it waits 16 to 24
//	n times that           24 / n, at least 2   a third of the patience
//
// So of connections that come in great number for a request each, few wait at the
// same time. That matters for good, since the runtime never frees what describes a
// goroutine. But it would be wrong for connections in steady use, which being parked
// costs most: one that came back within the full patience is lively. It is given all
// of that the next time, and doesn't count as waiting.
type sweeper struct {
	// immutable
	tick time.Duration

	// atomic
	ticks atomic.Uint32 // when the clock was last read

	// guarded by feed.mu
	timer   *time.Timer // runs while net/http has connections
	hurried bool        // the next sweep was brought forward
}

const (
	ticksToPark = 16
	sweepTicks  = ticksToPark / 2
	patience    = ticksToPark + sweepTicks // ticks
	patienceMin = 2                        // ticks

	// crowd is how many connections of a feed may wait at the same time before they
	// are parked sooner. With net/http's buffers and their stacks that many take a
	// megabyte.
	crowd = 32

	// tickMin keeps sweeps apart if the time to park is very short.
	tickMin = 64 * time.Microsecond

	// pausePerConn keeps sweeps apart if there are many connections. A look at one takes
	// some 20 ns, so sweeps take a fiftieth of a processor at most.
	pausePerConn = time.Microsecond
)

func newSweeper(parkAfter time.Duration, sweep func()) sweeper {
	if parkAfter == 0 {
		parkAfter = DefaultParkAfter // for Reads right after Accept, which should find something
	}
	timer := time.AfterFunc(math.MaxInt64, sweep)
	timer.Stop()
	return sweeper{tick: max(parkAfter/ticksToPark, tickMin), timer: timer}
}

// read reads the clock.
func (s *sweeper) read() uint32 {
	tick := uint32(monotime.Now()/int64(s.tick)) & tickMask
	s.ticks.Store(tick)
	return tick
}

// joinedLocked is told of one more connection: there are n now.
func (s *sweeper) joinedLocked(n int) {
	switch {
	case n == 1:
		s.read()
		s.hurried = false
		s.timer.Reset(sweepTicks * s.tick)
	case n%crowd == 0 && !s.hurried:
		s.hurried = true
		s.timer.Reset(max(s.tick, time.Duration(n)*pausePerConn))
	}
}

// leftLocked is told of one less.
func (s *sweeper) leftLocked(n int) {
	if n == 0 {
		s.timer.Stop()
	}
}

// sweep is what the timer does.
func (f *feed) sweep() {
	due, limit := f.overdue()
	for _, o := range due {
		o.conn.sever(o.seen)
	}
	pause := time.Duration(max(limit/(patience/sweepTicks), 1)) * f.sweeper.tick
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweeper.hurried = false
	if n := len(f.mu.lent); n > 0 {
		f.sweeper.timer.Reset(max(pause, time.Duration(n)*pausePerConn))
	}
}

// overdueConn is a connection that waits for a request, as the sweeper saw it.
type overdueConn struct {
	conn *conn
	seen word
}

// overdue returns those that have waited for long enough, and for how many ticks
// those may that are not lively.
func (f *feed) overdue() (due []overdueConn, limit uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.sweeper.ticks.Load()
	tick := f.sweeper.read() // with mu: the clock must not seem to go back
	return f.overdueLocked(tick, (tick-last)&tickMask)
}

// overdueLocked is overdue at a tick, which is gap ticks later than those that Reads
// have noted since the last sweep. One that has noted the last tick may have begun
// just now.
func (f *feed) overdueLocked(tick, gap uint32) (due []overdueConn, limit uint32) {
	full := max(patience, gap+1)
	waiting := 0
	for _, c := range f.mu.lent {
		if w := c.load(); w.mayPark() && !w.has(lively) {
			waiting++
		}
	}
	limit = max(patience*crowd/uint32(max(waiting, crowd)), patienceMin)
	for _, c := range f.mu.lent {
		w := c.load()
		if since := w.since(tick); w.mayPark() && (since >= full || since >= limit && limit < patience && !w.has(lively)) {
			due = append(due, overdueConn{c, w})
		}
	}
	return due, limit
}
