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
// the time between two sweeps, and the Read waits for less than the ticks below by as
// much.
//
//	connections                   wait for at most          time to the next sweep
//	recently used                 112 ticks: 104 to 112     8 ticks
//	others, up to crowdMin        24 ticks: 16 to 24        8 ticks
//	others, n times crowdMin      24 / n, at least 2        a third of that
//
// A connection is recently used when it was parked for nothing: its next request came
// before it would have waited for 112 ticks. Being parked costs about as much as a
// request, so a connection with a request every half second, of which there may be
// thousands, would pay twice for each. So it is parked once only. The price is memory: a
// connection that goes quiet after steady use keeps its goroutine and its buffers for
// seven times the time to park.
//
// The others are parked sooner if they are many. Of connections that come in great number
// for a request each, few wait at the same time then. That matters permanently, because
// the runtime never frees the descriptions of goroutines.
//
// # Without holding others up
//
// The loop needs queue.mu for each connection that wakes up. So a sweep holds it only to
// copy a chunk of connections, and looks at them without it.
type sweeper struct {
	// immutable
	tick time.Duration

	// atomic
	ticks atomic.Uint32 // when the clock was last read

	// guarded by queue.mu
	timer    *time.Timer // runs while net/http has connections, but not during a sweep
	sweeping bool        // when it ends the sweep sets the timer
	hurried  bool        // the next sweep was brought forward, or will be
}

const (
	ticksToPark = 16
	sweepTicks  = ticksToPark / 2

	parkTicks       = ticksToPark + sweepTicks
	parkTicksMin    = 2               // in a crowd
	parkTicksRecent = 7 * ticksToPark // of recently used connections; see DefaultParkAfter

	// crowdMin is how many connections of a queue that are not recently used may wait at
	// the same time before they are parked sooner. With net/http's buffers and their stacks
	// that many take a megabyte.
	crowdMin = 32

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

// joinedLocked is for one more connection: there are n now.
func (s *sweeper) joinedLocked(n int) {
	switch {
	case n == 1 && !s.sweeping:
		s.read()
		s.hurried = false
		s.timer.Reset(sweepTicks * s.tick)
	case n%crowdMin == 0 && !s.hurried:
		s.hurried = true
		if !s.sweeping {
			s.sweepAfterLocked(s.tick, n)
		}
	}
}

// leftLocked is for one less.
func (s *sweeper) leftLocked(n int) {
	if n == 0 {
		s.timer.Stop()
	}
}

// sweepAfterLocked lets the next sweep, of n connections, come after pause, or later if they are many.
func (s *sweeper) sweepAfterLocked(pause time.Duration, n int) {
	s.timer.Reset(max(pause, time.Duration(n)*pausePerConn))
}

// sweep is the timer's function.
func (q *connQueue) sweep() {
	tick, gap := q.beginSweep()
	q.endSweep(q.parkOverdue(tick, gap, (*conn).expireRead))
}

// beginSweep returns the time, and how much later it is than the ticks that Reads have
// noted since the last sweep.
func (q *connQueue) beginSweep() (tick, gap uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.sweeper
	s.sweeping, s.hurried = true, false
	last := s.ticks.Load()
	tick = s.read() // with mu: the clock must not seem to go back
	return tick, (tick - last) & tickMask
}

// endSweep sets the timer for the next sweep. limit is for how many ticks the
// connections wait that are not recently used.
func (q *connQueue) endSweep(limit uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.sweeper
	s.sweeping = false
	pause := time.Duration(max(limit/(parkTicks/sweepTicks), 1)) * s.tick
	if s.hurried {
		pause = s.tick
	}
	if n := q.mu.leased.len; n > 0 {
		s.sweepAfterLocked(pause, n)
	}
}

// parkOverdue calls park for the connections that have waited for long enough at a tick,
// with their states, and returns for how many ticks those may wait that are not recently
// used. The tick is gap later than those that Reads have noted since the last sweep: one
// that has noted the last tick may have begun just now.
func (q *connQueue) parkOverdue(tick, gap uint32, park func(c *conn, seen leaseState)) (limit uint32) {
	others := 0
	q.each(&q.mu.leased, func(c *conn) {
		w := c.lease()
		if !w.mayPark() {
			return
		}
		limit := uint32(parkTicksRecent)
		if !w.has(recentlyUsed) {
			limit = parkTicks
			others++
		}
		if w.since(tick) >= max(limit, gap+1) {
			park(c, w)
		}
	})
	limit = max(parkTicks*crowdMin/uint32(max(others, crowdMin)), parkTicksMin)
	if limit == parkTicks {
		return limit
	}
	q.each(&q.mu.leased, func(c *conn) {
		if w := c.lease(); w.mayPark() && !w.has(recentlyUsed) && w.since(tick) >= limit {
			park(c, w)
		}
	})
	return limit
}
