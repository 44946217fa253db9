package reactor

import (
	"errors"
	"slices"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
)

// A task over all connections of a loop is done in turns, between which the loop handles events: the
// other connections don't wait for a message to thousands. A walk is such a task. The walks of a loop
// are made one after the other, so that all connections get two broadcasts in the same order.

const (
	// turnConns is how many connections have their turn before the loop looks for events. A write to
	// one takes 5 to 20 µs on loopback, so that is a millisecond at most.
	turnConns = 64

	// turnTime ends a turn early, if a function of Each takes long. It is in nanoseconds.
	turnTime = int64(1e6)
)

// walk is a call of do for each of a loop's connections.
type walk struct {
	conns []*Conn // that it has yet to reach, in no order
	do    func(c *Conn)
	done  func() // nil if nothing is to do at the end
}

// walkSoon makes the loop call do for each of its connections that are open then, and done last. If the
// loop has ended it calls done only.
func (l *Loop) walkSoon(do func(c *Conn), done func()) {
	if !l.engine.Retain() {
		if done != nil {
			done()
		}
		return
	}
	l.engine.Submit(func() {
		l.walks = append(l.walks, walk{slices.Clone(l.conns), do, done})
		if len(l.walks) == 1 {
			l.walkOn()
		}
	})
}

// walkOn makes one turn.
func (l *Loop) walkOn() {
	again := true
	defer func() { // also if a function of the program ends the goroutine
		if again {
			l.engine.Defer(l.walkFn)
		}
	}()
	w := &l.walks[0]
	start := monotime.Now()
	for n := 0; len(w.conns) > 0 && n < turnConns && monotime.Now()-start < turnTime; n++ {
		last := len(w.conns) - 1
		c := w.conns[last]
		w.conns[last] = nil
		w.conns = w.conns[:last]
		if c.phase == open || c.phase == ending {
			w.do(c)
		}
	}
	if len(w.conns) > 0 {
		return
	}
	done := w.done
	l.walks[0] = walk{}
	l.walks = l.walks[1:]
	if again = len(l.walks) > 0; !again {
		l.walks = nil
	}
	l.engine.Release()
	if done != nil {
		done()
	}
}

// Broadcast writes p to all open connections. It copies p once. Each loop writes to its own
// connections, soon, some at a time; Broadcast does not wait. All connections get two broadcasts of one
// goroutine in their order.
//
// A connection that can't take p within WriteHardLimit misses it. If missed is not nil it is
// called for that connection, on its loop, and decides what becomes of it. It may write something
// else, or close it, or do nothing. If missed is nil the connection is closed for [ErrWriteBufferFull],
// also if the handler is a [RoomHandler]: no peer misses a message and gets the next.
func (s *Server) Broadcast(p []byte, missed func(c *Conn)) {
	if len(p) == 0 {
		return
	}
	b := pool.Get(len(p))
	copy(b.Bytes(), p)
	for _, l := range s.loops() {
		b.Retain()
		l.walkSoon(func(c *Conn) { c.broadcast(b, missed) }, b.Release)
	}
	b.Release()
}

// broadcast writes b's bytes, or deals with a connection that can't take them.
func (c *Conn) broadcast(b *pool.Buffer, missed func(c *Conn)) {
	switch err := c.writeShared(b, missed != nil); {
	case !errors.Is(err, ErrWriteBufferFull):
	case missed == nil:
		c.end(askClose, ErrWriteBufferFull)
	default:
		c.enter()
		c.call("Broadcast", func() { missed(c) })
		c.leave()
	}
}

// Each calls f for each open connection, on its loop, soon, some at a time. It does not wait. f must
// not block.
func (s *Server) Each(f func(c *Conn)) {
	for _, l := range s.loops() {
		l.walkSoon(func(c *Conn) {
			l.begin()
			c.enter()
			c.call("Each", func() { f(c) })
			c.leave()
		}, nil)
	}
}
