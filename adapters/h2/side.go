package h2

import (
	"errors"
	"net"
	"runtime"

	"github.com/percore/percore/internal/http2"
)

// A side is what a connection of a Server does in another way than one of a Client. All else is common
// to both, and does not ask. The core has a side of its own: see internal/http2.
//
//	             server                                     client
//	settle       nothing: a stream counts until its         counts streams that have ended, and opens those
//	             handler has returned                       that have waited for room
//	sent         a worker sends it, since other handlers    the caller sends it
//	             may be about to answer
//	lend         a handler sends and may wait               a caller sends with others that are about to
//	hasRoom      always: handlers may wait                  if the kernel takes it without waiting
//	writeFailed  the connection is closed                   what was read before is still taken
//	ended        what was not read is dropped, and the      what has come is read before the error, as with
//	             handler is told                            net/http's client
//	hangUp       streams that are answered are reset        the state Leaving is reported
//	close        resets of such streams go out before       a GOAWAY goes out before, and nothing lingers
//
// All methods are called with the lock of the connection held.
type side interface {
	// settle is called before the lock is released.
	settle(c *Conn)

	// sent is for what Send or Write has put into the output.
	sent(s *Stream)

	// lend sends the output on the goroutine of s's handler or caller. It may release the lock.
	lend(s *Stream)

	// hasRoom reports whether such a goroutine may send the output and so many bytes. It may release the
	// lock.
	hasRoom(c *Conn, bytes int) bool

	// writeFailed is for a connection whose peer can't be written to.
	writeFailed(c *Conn, err error)

	// ended is for a stream that ends early. first says that it had not before.
	ended(s *Stream, first bool)

	// hangUp is for a connection that ends when its output is sent. Its streams have ended.
	hangUp(c *Conn)

	// close closes the connection, for Abort behind a GOAWAY with why, or at once.
	close(c *Conn, why *ConnError)
}

// serverSide is the side of a Server.
type serverSide struct{}

func (serverSide) settle(*Conn) {}

func (serverSide) sent(s *Stream) { s.conn.flushSoonLocked() }

func (serverSide) lend(s *Stream) {
	if c := s.conn; c.beginFlushLocked() {
		c.flushAllLocked(s)
	}
}

func (serverSide) hasRoom(*Conn, int) bool { return true }

func (serverSide) writeFailed(c *Conn, err error) { c.failLocked(NoError, err) }

func (serverSide) ended(s *Stream, _ bool) {
	s.unqueueLocked()
	s.wakeLocked()
	s.unread.drop()
	if s.stage != served && !s.marks.has(cancelled) {
		s.marks |= cancelled
		s.nextCall, s.conn.calls.cancelled = s.conn.calls.cancelled, s
	}
}

// hangUp resets the streams that are answered, though their requests go on. Otherwise, when the
// connection has ended, net/http's client waits for the rest of a body, which it may read from
// somewhere, and nothing ends that.
func (serverSide) hangUp(c *Conn) {
	c.core.Each(func(st *http2.Stream) {
		if st.WriteEnded() {
			c.lend()
			c.core.Reset(st, NoError)
		}
	})
}

// close lets a connection hang up that has streams that are answered, though their requests go on: a
// close at once could take their resets away from the client.
func (serverSide) close(c *Conn, why *ConnError) {
	switch {
	case why != nil:
		c.abortLocked(why)
	case c.phase == alive && (c.parting > 0 || c.core.Answered() > 0):
		c.hangUpLocked(&ConnError{Code: NoError, Err: net.ErrClosed})
	case c.err == nil || c.err.Err != net.ErrClosed: // else it has hung up here; ErrServerClosed wraps it
		c.failLocked(NoError, net.ErrClosed)
	}
}

// clientSide is the side of a Client. Its callers send. They must neither wait for the server, since a
// context may end, nor lose an answer that is there already when the server takes no more.
type clientSide struct{}

func (cl clientSide) settle(c *Conn) {
	n := int32(c.core.Streams())
	if c.phase != alive {
		n = 0 // they have ended, though the core has them still
	}
	if ended := c.open - n; ended > 0 {
		c.workers.counts.Add(countServed, int64(ended)) // or lost: see ClientStats
		if c.open = n; n == 0 {
			c.quietLocked()
		}
	}
	switch {
	case c.open > 0 || c.phase != alive:
	case c.clock.cut() != nil:
		c.giveUpLocked()
	case c.core.Leaving():
		c.hangUpIfDoneLocked()
	case !c.core.TakesStreams():
		c.leaveLocked()
	}
	if c.waiting != nil {
		cl.grant(c)
	}
}

func (cl clientSide) sent(s *Stream) { cl.lend(s) }

// lend lets callers that are about to send do so with this call.
func (clientSide) lend(s *Stream) {
	c := s.conn
	if !c.beginFlushLocked() {
		return
	}
	if c.open > 1 {
		c.mu.Unlock()
		runtime.Gosched()
		c.mu.Lock()
	}
	c.flushAllLocked(s)
}

// hasRoom asks the kernel, which is seldom: the answer holds until so many bytes were sent. If there is
// no room a worker writes, and callers wait for their streams. In memory, where there is no kernel,
// workers write always.
func (clientSide) hasRoom(c *Conn, bytes int) bool {
	if len(c.core.Output())+bytes > int(c.credit) {
		c.mu.Unlock()
		room := c.below.room()
		c.mu.Lock()
		c.credit = int32(min(room, creditMost))
	}
	return len(c.core.Output())+bytes <= int(c.credit)
}

// creditMost is how many bytes are sent before the kernel is asked again, at most.
const creditMost = 1 << 20

// writeFailed cuts off a connection on which nothing can be sent any more, since the server has ended
// it, or reset it. The reader reads on, because an answer may be there, and ends the connection at the
// server's end, or after lingerTime. grpc-go's client reads on, too.
func (clientSide) writeFailed(c *Conn, err error) {
	if c.phase != alive {
		c.failLocked(NoError, err)
		return
	}
	end := c.clock.makeEnding()
	end.cut, end.cutAt = err, c.below.now()
	c.drop()
	for c.core.Senders() > 0 {
		s := c.core.Sender().User.(*Stream)
		s.unqueueLocked()
		s.wakeLocked()
	}
	c.changedLocked(Leaving)
	c.setAlarmLocked()
}

func (clientSide) ended(s *Stream, first bool) {
	if first {
		s.unqueueLocked()
		s.wakeLocked()
		s.conn.workers.counts.Add(countLost, 1)
	}
}

func (clientSide) hangUp(c *Conn) { c.changedLocked(Leaving) }

func (cl clientSide) close(c *Conn, why *ConnError) {
	atOnce := why == nil
	if atOnce {
		why = &ConnError{Code: NoError, Err: errors.New("")}
	}
	if c.abortLocked(why) {
		c.clock.makeEnding().abrupt = true
		if cl.hasRoom(c, 0) { // else the worker of hangUpLocked sends it
			c.flushLocked()
		}
	}
	if atOnce && !c.clock.ending().abrupt {
		c.failLocked(NoError, net.ErrClosed)
	}
}
