package h1

import (
	"sync"

	"github.com/percore/percore"
)

// Mover takes connections that wait for a request out of service, so that another process can serve
// them.
//
// The worker, or the accept loop, offers it each connection that is about to wait. So a client whose
// next request follows each answer at once moves as well: its connection waits for microseconds only.
// HandOver also makes the mover look at all connections, at first and from time to time, for those that
// wait already, and those for which there was no room.
//
// An offer costs a request the load of a nil pointer, from memory that it uses anyway.
type Mover struct {
	most int           // immutable; connections taken at a time
	Wake chan struct{} // has a token if taken may have changed

	// mu is taken before Conn.mu.
	mu struct {
		sync.Mutex
		taken []*Moving // in takenOut or closing; up to most
		over  bool
	}
}

// NewMover makes one that takes up to most connections at a time.
func NewMover(most int) *Mover { return &Mover{most: most, Wake: make(chan struct{}, 1)} }

// End returns the connections that were taken, and takes no more.
func (m *Mover) End() {
	m.mu.Lock()
	m.mu.over = true
	m.mu.Unlock()
	for _, c := range m.TakeAll() {
		c.PutBack()
	}
}

// SetMover makes connections leave with m; nil: they stay.
func (s *Server) SetMover(m *Mover) {
	for _, q := range s.Queues {
		q.mover.Store(m)
	}
}

// Look takes the server's connections that wait. It calls full whenever it has as many as it
// may have, and takes no more when that returns false.
func (m *Mover) Look(s *Server, full func() bool) {
	goesOn := true
	s.Each(func(c *Conn) {
		if _, waits := c.load().takeOut(); goesOn && waits && m.take(c, connState.takeOut, true) && m.isFull() {
			goesOn = full()
		}
	})
}

// Left returns how many connections the server has.
func (s *Server) Left() (n int) {
	for _, q := range s.Queues {
		n += q.left()
	}
	return n
}

// Shaking returns how many connections may be about to switch to HTTP/2 over TLS: the handshake is not
// over, or only just. (A connection that switches is kept until the host has called Forget.)
func (s *Server) Shaking() (n int) {
	for _, q := range s.Queues {
		if q.admitting.Load() { // first: then the connection is kept
			n++
		}
	}
	s.Each(func(c *Conn) {
		switch s := c.load(); s.state() {
		case stateFresh, stateHandshake, stateServing, stateHijacked:
			if c.TLS() != nil && !s.has(began) {
				n++
			}
		}
	})
	return n
}

// take takes c out of service by an event, unless m has enough, and reports whether it did. armed is
// false if the caller has not armed the callback.
func (m *Mover) take(c *Conn, event func(connState) (connState, bool), armed bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.over || len(m.mu.taken) == m.most || !(*Moving)(c).takeOut(event, armed) {
		return false
	}
	m.mu.taken = append(m.mu.taken, (*Moving)(c))
	select {
	case m.Wake <- struct{}{}:
	default:
	}
	return true
}

// offer offers a connection that waits from now on, and whose callback is not armed. It reports whether
// m, which may be nil, has taken it.
func (m *Mover) offer(c *Conn) bool { return m != nil && m.take(c, connState.takeOut, false) }

func (m *Mover) isFull() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.mu.taken) == m.most
}

// TakeAll returns the connections that were taken. Each is the caller's to PutBack, or to CloseMoved.
func (m *Mover) TakeAll() []*Moving {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.mu.taken
	m.mu.taken = nil
	return taken
}

// Moving is a Conn that a Mover has taken.
type Moving Conn

// Waiting returns the connection for another process.
func (m *Moving) Waiting() percore.WaitingConn {
	return percore.WaitingConn{Conn: m.Conn, Served: (*Conn)(m).HasServed()}
}

// takeOut takes a connection out of service. It reports false if event doesn't apply to its state, or
// a part of a request was read.
//
// The callback of a connection that waits is armed, about to be, or on its way. One that can't be
// cancelled comes, and is noted: PutBack arms the callback exactly if it has come, or never will.
func (m *Moving) takeOut(event func(connState) (connState, bool), armed bool) bool {
	c := (*Conn)(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := event(c.load()); !ok || c.kept != nil {
		return false
	}
	c.change(event)
	if c.Conn.CancelOnReadable() || !armed {
		c.change(connState.disarm)
	}
	return true
}

// PutBack makes a connection wait again, or closes it if Close was called in the meantime.
func (m *Moving) PutBack() {
	c := (*Conn)(m)
	c.mu.Lock()
	from := c.load()
	_, stays := c.change(connState.putBack)
	c.mu.Unlock()
	if !stays {
		m.closeTakenOut()
		return
	}
	if from.has(disarmed) {
		c.arm()
	}
	c.rested()
}

// CloseMoved closes a connection that belongs to another process now. The client doesn't notice.
func (m *Moving) CloseMoved() {
	m.queue.counts.Add(CountHandedOver, 1)
	m.closeTakenOut()
}

// closeTakenOut closes a connection that a mover has.
func (m *Moving) closeTakenOut() {
	c := (*Conn)(m)
	c.end(connState.closeTakenOut)
	c.closeEnded()
}
