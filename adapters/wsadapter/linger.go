package wsadapter

import (
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// patience says how long a Session's Read waits for the next message before its connection is armed.
// To arm a connection and to wake it costs about as much as a small message, so one whose messages
// follow each other closely lingers: its goroutine waits in the library's read, as with the library
// alone, until a sweep ends the wait.
//
//	patience   between two messages a read           leaves by
//	none       doesn't wait                          armed, and woken soon: some; it can't be armed: endless
//	some       will wait for a while                 Read: lingering
//	lingering  waits, and no sweep has come since    bytes, or an error: some; a sweep: overdue
//	overdue    waits, and one sweep has come         bytes, or an error: some; a sweep: spent
//	spent      has waited its time, and fails;        armed, and woken: none
//	           the next ones don't wait
//	endless    waits for as long as it takes         stays so
//
// A connection that is armed after it has lingered without a message doesn't linger the next time,
// however soon it is woken. Otherwise a peer whose messages always come just after the linger is over
// would cost the most: a goroutine nearly all the time, and arming as well.
type patience uint8

const (
	none patience = iota
	some
	lingering
	overdue
	spent
	endless
)

// sweepPause is the time between two sweeps. So a connection lingers for that time at least and twice
// that time at most, and begins to if a message comes within that time of its being armed.
//
// So the goroutines that linger are as many as messages come in a tenth of a second, at most, and
// those of them that belong to connections with a message each second, however many, are none.
const sweepPause = 50 * time.Millisecond

// lingerers are the process's connections that linger, or have done so since the last sweep.
var lingerers = sweeper{pause: sweepPause}

// sweeper ends waits that take long. A message costs it nothing: a connection is added once per sweep
// at most, and a wait that begins or ends only changes the patience.
type sweeper struct {
	pause time.Duration // immutable, except for tests

	mu sync.Mutex

	// guarded by mu
	conns []*Conn
	timer *time.Timer
	set   bool // a sweep will come, or is under way
}

// add has the next sweep look at c. The caller may hold c.mu.
func (s *sweeper) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	if !s.set {
		s.setLocked()
	}
}

func (s *sweeper) setLocked() {
	s.set = true
	if s.timer == nil {
		s.timer = time.AfterFunc(s.pause, s.sweep)
	} else {
		s.timer.Reset(s.pause)
	}
}

// sweep looks at all connections. It holds mu only to take and to return them, so that none that begins
// to linger waits for it.
func (s *sweeper) sweep() {
	s.mu.Lock()
	all := s.conns
	s.conns = nil
	s.mu.Unlock()
	linger := all[:0]
	for _, c := range all {
		if c.sweep() {
			linger = append(linger, c)
		}
	}
	clear(all[len(linger):])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(linger, s.conns...)
	if len(s.conns) > 0 {
		s.setLocked()
	} else {
		s.conns, s.set = nil, false
	}
}

// sweep ends the wait of a read that has lingered for long enough. It reports whether the read lingers
// on.
func (c *Conn) sweep() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.patience {
	case lingering:
		c.patience = overdue
		return true
	case overdue:
		c.patience = spent
		_ = c.socket.SetNoWait(true) // or the read fails because c is closed
	}
	c.listed = false
	return false
}

// lingerLocked has the read that is about to begin linger.
func (c *Conn) lingerLocked() {
	if !c.listed {
		c.listed = true
		lingerers.add(c)
	}
	c.patience = lingering
}

// endLingerLocked notes that a read has ended.
func (c *Conn) endLingerLocked() {
	switch c.patience {
	case lingering, overdue:
		c.patience = some
	case spent:
		_ = c.socket.SetNoWait(false)
	}
}

// woken notes that the connection, which was armed, has something to read.
func (c *Conn) woken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.patience {
	case none:
		if time.Duration(milliseconds()-c.since)*time.Millisecond < lingerers.pause {
			c.patience = some
		}
	case spent:
		c.patience = none
	}
}

// milliseconds is a clock that goes round in a minute. A message that comes just so late lingers in
// vain.
func milliseconds() uint16 { return uint16(monotime.Now() / int64(time.Millisecond)) }
