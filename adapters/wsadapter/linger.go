package wsadapter

import (
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// lingerState says how long a Session's Read waits for the next message before its connection is
// armed. Arming and waking a connection costs about as much as a small message. So a connection whose
// messages follow each other closely lingers: its goroutine waits in the library's read, as with the
// library alone, until a sweep ends the wait.
//
//	state      between two messages a read            leaves by
//	noLinger   doesn't wait                           armed, and woken soon: mayLinger; it can't be
//	                                                  armed: blocking; no marker may end it: keeping
//	mayLinger  will wait for a while                  Read: lingering; no marker may end it: keeping
//	lingering  waits, and no sweep has come since     bytes, or an error: mayLinger; a sweep: overdue
//	overdue    waits, and one sweep has come          bytes, or an error: mayLinger; a sweep: lingered
//	lingered   has waited long enough, and fails;     armed, and woken: noLinger
//	           the next ones don't wait               no marker may end it: keeping
//	keeping    waits for as long as it takes          bytes, or an error: noLinger
//	blocking   waits for as long as it takes          (final)
//
// A connection that is armed after it has lingered without a message doesn't linger the next time,
// however soon it is woken. Otherwise a peer whose messages always come just too late
// would cost the most: a goroutine nearly all the time, and arming as well.
type lingerState uint8

const (
	noLinger lingerState = iota
	mayLinger
	lingering
	overdue
	lingered
	keeping
	blocking
)

// sweepPause is the time between two sweeps. A connection lingers for at least this time and at most
// twice as long. It begins to linger if a message comes within this time after it was armed.
//
// So there are at most as many lingering goroutines as messages in a tenth of a second, and
// connections with a message each second, however many, have none.
const sweepPause = 50 * time.Millisecond

// lingerers are the process's connections that linger, or have done so since the last sweep.
var lingerers = lingerSet{pause: sweepPause}

// lingerSet ends lingering that takes long. Messages cost it nothing: a connection is added at most
// once per sweep, and a wait that begins or ends only changes the connection's lingerState.
type lingerSet struct {
	pause time.Duration // immutable, except for tests

	mu sync.Mutex

	// guarded by mu
	conns []*Conn
	set   bool // a sweep will come, or is under way
}

// add makes the next sweep look at c. The caller may hold c.mu.
func (s *lingerSet) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	if !s.set {
		s.set = true
		time.AfterFunc(s.pause, s.sweep)
	}
}

// sweep looks at all connections. It holds mu only to take and to return them: a connection that begins
// to linger doesn't wait for it.
func (s *lingerSet) sweep() {
	s.mu.Lock()
	all := s.conns
	s.conns = nil
	s.mu.Unlock()
	all = slices.DeleteFunc(all, func(c *Conn) bool { return !c.sweep() })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(all, s.conns...)
	if s.set = len(s.conns) > 0; s.set {
		time.AfterFunc(s.pause, s.sweep)
	} else {
		s.conns = nil
	}
}

// sweep ends the wait of a read that has lingered for long enough. It reports whether the read lingers
// on.
func (c *Conn) sweep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.linger {
	case lingering:
		c.linger = overdue
		return true
	case overdue:
		c.linger = lingered
		_ = c.socket.SetNoWait(true) // or the read fails because c is closed
	}
	c.listed = false
	return false
}

// endLinger ends the wait of a read that lingers.
func (c *Conn) endLinger() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.linger == lingering || c.linger == overdue {
		c.linger = lingered
		_ = c.socket.SetNoWait(true) // or the read fails because c is closed
	}
}

// keep makes the read that is about to begin wait for as long as it takes.
func (c *Conn) keep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linger = max(c.linger, keeping)
}

// lingerLocked makes the read that is about to begin linger.
func (c *Conn) lingerLocked() {
	if !c.listed {
		c.listed = true
		lingerers.add(c)
	}
	c.linger = lingering
}

// readEndedLocked notes that a read has ended.
func (c *Conn) readEndedLocked() {
	switch c.linger {
	case lingering, overdue:
		c.linger = mayLinger
	case lingered:
		_ = c.socket.SetNoWait(false)
	case keeping:
		c.linger = noLinger
	}
}

// woken notes that the connection, which was armed, has something to read.
func (c *Conn) woken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.linger {
	case noLinger:
		if time.Duration(milliseconds()-c.since)*time.Millisecond < lingerers.pause {
			c.linger = mayLinger
		}
	case lingered:
		c.linger = noLinger
	}
}

// milliseconds is a clock that wraps around in a minute. A connection that is woken that late may linger
// without need.
func milliseconds() uint16 { return uint16(monotime.Now() / int64(time.Millisecond)) }
