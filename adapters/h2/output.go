package h2

import (
	"net"
	"sync"

	"github.com/percore/percore/internal/pool"
)

// output is what waits to be sent, and who sends it. The frames themselves are in the core.
//
//	flushing  flushQueued  meaning                                    leaves by
//	false     false        nothing waits, or a handler that is        flushSoon, flush, sendDirect
//	                       queued will send it
//	false     true         a worker will send                         its turn comes: flush
//	true      any          a goroutine sends, without mu, until       nothing is left; an error;
//	                       nothing is left                            flushSoon, if it is a handler's
//
// Bodies that the windows or the room don't let into the output wait in a ring, the senders. A
// sender's goroutine waits until all of its body is in the output; the one that flushes moves the
// bytes there, a frame of each sender in turn. So a WINDOW_UPDATE wakes no goroutine that would
// only have to wait again.
type output struct {
	// guarded by mu
	memory      pool.Growable // of the core's output, once it is lent
	lent        bool
	flushing    bool
	flushQueued bool
	senders     *sender // the next one to send; a ring
}

// sender is a stream whose body waits.
type sender struct {
	stream     *Stream
	unsent     []byte
	end        bool // the end of the answer is behind it
	next, last *sender
}

const (
	roomBytes   = 64 << 10  // with more in the output a handler waits for room
	directBytes = 16 << 10  // a body as long is sent without being copied
	directMost  = 256 << 10 // by one call
)

// lendLocked gives the core's output memory, before frames of an answer are made. Frames that wait
// already, a WINDOW_UPDATE perhaps, move to it: otherwise the answer would make them move several times.
func (c *Conn) lendLocked() {
	if !c.output.lent {
		c.output.lent = true
		c.core.LendOutput(c.output.memory.Memory())
	}
}

// takeOutputLocked returns the output, and the memory to release when it is sent.
func (c *Conn) takeOutputLocked() (p []byte, memory pool.Growable) {
	p = c.core.TakeOutput()
	if c.output.lent {
		memory = c.output.memory
		memory.Set(p)
		c.output.memory, c.output.lent = pool.Growable{}, false
	}
	return p, memory
}

// dropOutputLocked drops the output of a connection that sends nothing more.
func (c *Conn) dropOutputLocked() {
	_, memory := c.takeOutputLocked()
	memory.Release()
}

// hasOutputLocked reports whether there is something to send.
func (c *Conn) hasOutputLocked() bool {
	return len(c.core.Output()) > 0 || c.output.senders != nil
}

// flushLocked sends the output, unless another goroutine is already sending. It releases mu while
// it sends.
//
// s is the stream whose handler lends its goroutine, or nil for a worker. When all that s has is
// sent, a worker goes on: other streams may never stop, and this one would send nothing of
// its own meanwhile.
func (c *Conn) flushLocked(s *Stream) {
	if c.flushing || c.phase > hanging {
		return
	}
	c.flushing = true
	done := false
	for c.phase <= hanging {
		c.pumpLocked()
		if len(c.core.Output()) == 0 {
			c.dropOutputLocked() // the memory was not needed
			c.sentLocked()
			break
		}
		if done {
			c.flushing = false
			c.flushSoonLocked()
			return
		}
		done = s != nil && s.sender == nil // what s has is in this piece
		p, memory := c.takeOutputLocked()
		t := c.beginWriteLocked()
		c.mu.Unlock()
		err := c.below.write(p, t)
		memory.Release()
		c.mu.Lock()
		c.endWriteLocked()
		if err != nil {
			c.writeFailedLocked(err)
		}
	}
	c.flushing = false
	if c.phase == closed {
		c.dropOutputLocked()
	}
}

// writeFailedLocked ends the connection, because the client can't be written to.
func (c *Conn) writeFailedLocked(err error) {
	if isTimeout(err) && c.phase != closed {
		c.countTimeout(timeoutRead)
	}
	c.failLocked(NoError, err)
}

// flushSoonLocked makes a worker send the output, unless that is going to happen anyway. It doesn't
// block.
func (c *Conn) flushSoonLocked() {
	if c.flushing || c.flushQueued || c.phase > hanging || c.phase == serving && !c.hasOutputLocked() {
		return
	}
	c.flushQueued = true
	c.workers.Serve(item{c: c, kind: itemFlush})
}

// flushQueuedTurn is a worker's turn to send.
func (c *Conn) flushQueuedTurn() {
	c.mu.Lock()
	c.flushQueued = false
	c.flushLocked(nil)
	c.unlock()
}

// pumpLocked moves bodies of the senders into the output, a frame of each in turn, as far as
// windows and room go.
func (c *Conn) pumpLocked() {
	var stuck *sender // since this one nothing was moved
	for c.senders != nil && c.senders != stuck && len(c.core.Output()) < roomBytes {
		at := c.senders
		s := at.stream
		c.lendLocked()
		p := at.unsent[:min(len(at.unsent), directBytes)]
		n, err := c.core.Data(&s.core, p, at.end && len(p) == len(at.unsent))
		at.unsent = at.unsent[n:]
		switch {
		case err != nil || len(at.unsent) == 0 && (!at.end || s.core.WriteEnded()):
			s.leaveSendersLocked()
			s.wakeLocked()
			stuck = nil
		case n > 0:
			c.senders, stuck = at.next, nil
		default:
			if stuck == nil {
				stuck = at
			}
			c.senders = at.next
		}
	}
}

// joinSendersLocked puts s at the end of the ring.
func (s *Stream) joinSendersLocked(p []byte, end bool) {
	c := s.conn
	c.workers.counts.add(countStalled, 1)
	at := &sender{stream: s, unsent: p, end: end}
	s.sender = at
	first := c.senders
	if first == nil {
		c.workers.counts.add(countStalledConns, 1)
		c.senders, at.next, at.last = at, at, at
		return
	}
	at.next, at.last = first, first.last
	first.last.next, first.last = at, at
}

// leaveSendersLocked takes s out of the ring, if it is there.
func (s *Stream) leaveSendersLocked() {
	at := s.sender
	if at == nil {
		return
	}
	c := s.conn
	s.sender = nil
	c.workers.counts.add(countStalled, -1)
	if c.senders == at {
		c.senders = at.next
	}
	if c.senders == at {
		c.senders = nil
		c.workers.counts.add(countStalledConns, -1)
	}
	at.last.next, at.next.last = at.next, at.last
}

// sendBodyLocked sends p, with the end of the answer behind it if end is set. It releases mu while
// it waits for windows and room.
func (s *Stream) sendBodyLocked(p []byte, end bool) error {
	c := s.conn
	for s.err == nil && c.senders == nil && len(p) >= directBytes && !c.flushing && c.core.Window(&s.core) >= directBytes {
		n := s.sendDirectLocked(p[:min(len(p), directMost)], end && len(p) <= directMost)
		if p = p[n:]; len(p) == 0 && (!end || s.core.WriteEnded()) {
			return s.err
		}
		if n == 0 {
			break
		}
	}
	if err := s.sendErrorLocked(); err != nil {
		return err
	}
	if c.senders == nil && len(p) <= roomBytes {
		c.lendLocked()
		n, err := c.core.Data(&s.core, p, end)
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
	return s.awaitSentLocked(p, end)
}

// awaitSentLocked joins the senders with p, and waits until all of that is in the output, and the
// end behind it if end is set.
func (s *Stream) awaitSentLocked(p []byte, end bool) error {
	c := s.conn
	if s.hurried {
		s.resetLocked(Cancel, nil)
		c.flushSoonLocked()
		return s.sendErrorLocked()
	}
	s.joinSendersLocked(p, end)
	if c.flushLocked(s); s.sender != nil {
		c.workers.counts.add(countStalls, 1)
	}
	for s.sender != nil {
		s.waitLocked()
	}
	if s.err != nil {
		return s.err
	}
	return nil
}

// awaitRoomLocked waits until the output is not too long.
func (s *Stream) awaitRoomLocked() error {
	c := s.conn
	if len(c.core.Output()) < roomBytes || s.err != nil {
		return s.sendErrorLocked()
	}
	if err := s.awaitSentLocked(nil, false); err != nil {
		return err
	}
	return s.sendErrorLocked()
}

// direct is the memory of a call that sends without copying.
type direct struct {
	heads [directMost/directBytes + 1][16]byte
	v     [2*(directMost/directBytes+1) + 1][]byte
	bufs  net.Buffers
}

var directs = sync.Pool{New: func() any { return new(direct) }}

// sendDirectLocked sends the output and as much of p as the windows allow with one call. It
// releases mu while it sends, and returns how many bytes of p it has sent.
func (s *Stream) sendDirectLocked(p []byte, end bool) (n int) {
	c := s.conn
	d := directs.Get().(*direct)
	out, memory := c.takeOutputLocked()
	d.bufs = append(d.v[:0], out)
	for i := 0; i < len(d.heads) && n < len(p); i++ {
		c.lendLocked() // the end of a stream gives credit back
		head, m, err := c.core.DataHeader(d.heads[i][:0], &s.core, len(p)-n, end)
		if m == 0 || err != nil {
			break
		}
		d.bufs = append(d.bufs, head, p[n:n+m])
		n += m
	}
	c.flushing = true
	t := c.beginWriteLocked()
	c.mu.Unlock()
	err := c.below.writeBuffers(&d.bufs, t)
	memory.Release()
	clear(d.v[:])
	d.bufs = nil
	directs.Put(d)
	c.mu.Lock()
	c.endWriteLocked()
	c.flushing = false
	if err != nil {
		c.writeFailedLocked(err)
	}
	if c.phase == closed {
		c.dropOutputLocked()
	}
	c.flushSoonLocked() // what has arrived since
	return n
}
