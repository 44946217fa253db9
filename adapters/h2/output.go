package h2

import (
	"net"
	"runtime"
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
// Bodies that the windows or the room don't let into the output wait in the core, whose schedule says
// which is the next one: see http2.Conn.Queue. A handler waits until all that it has given is in the
// output; the goroutine that flushes moves the bytes there. So a WINDOW_UPDATE wakes no goroutine that
// would only have to wait again.
type output struct {
	// guarded by mu
	memory      pool.Growable // of the core's output, once it is lent
	lent        bool
	flushing    bool
	flushQueued bool
	woken       bool  // the pump has woken a handler
	credit      int32 // of a client: how many bytes can be written at once, at least; see hasRoomLocked
}

const (
	roomBytes   = 64 << 10  // with more in the output a handler waits for room
	directBytes = 16 << 10  // a body as long is sent without being copied
	directMost  = 256 << 10 // by one call
	directFirst = 32 << 10  // the same, if the client may want to have something else first
)

// directMostLocked returns how much of a body one call sends.
func (c *Conn) directMostLocked() int {
	if c.core.Prioritizes() {
		return directFirst
	}
	return directMost
}

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
	return len(c.core.Output()) > 0 || c.core.Ready()
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
	if c.isCutLocked() {
		c.dropOutputLocked()
		return
	}
	c.flushing = true
	if c.server.client && s != nil && c.open > 1 {
		c.mu.Unlock()
		runtime.Gosched() // callers that are about to send do so with this call
		c.mu.Lock()
	}
	done := false
	for c.phase <= hanging {
		if done && c.hasOutputLocked() {
			c.flushing = false
			c.flushSoonLocked()
			return
		}
		c.pumpLocked()
		if len(c.core.Output()) == 0 {
			c.dropOutputLocked() // the memory was not needed
			c.sentLocked()
			break
		}
		if c.server.client && s != nil && !c.hasRoomLocked() {
			c.flushing = false
			c.flushSoonLocked() // a worker may wait; this caller returns when its stream ends
			return
		}
		done = s != nil && !s.core.Queued() // what s has is in this piece
		p, memory := c.takeOutputLocked()
		c.credit = max(c.credit-int32(len(p)), 0)
		t := c.beginWriteLocked()
		c.mu.Unlock()
		err := c.below.write(p, t)
		memory.Release()
		c.mu.Lock()
		c.endWriteLocked()
		if err != nil {
			c.writeFailedLocked(err)
			break
		}
	}
	c.flushing = false
	if c.phase == closed {
		c.dropOutputLocked()
	}
}

// writeFailedLocked ends the connection, because the peer can't be written to.
func (c *Conn) writeFailedLocked(err error) {
	if isTimeout(err) && c.phase != closed {
		c.countTimeout(timeoutRead)
	}
	if c.server.client && c.phase == alive {
		c.cutOffLocked(err)
		return
	}
	c.failLocked(NoError, err)
}

// flushSoonLocked makes a worker send the output, unless that is going to happen anyway. It doesn't
// block.
func (c *Conn) flushSoonLocked() {
	if c.flushing || c.flushQueued || c.phase > hanging || c.phase == alive && !c.hasOutputLocked() {
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

// pumpLocked moves bodies that wait into the output, as far as windows and room go.
func (c *Conn) pumpLocked() {
	if !c.core.Ready() {
		return
	}
	c.lendLocked()
	for st := c.core.Pump(roomBytes); st != nil; st = c.core.Pump(roomBytes) {
		s := st.User.(*Stream)
		c.sendersLocked(-1)
		s.wakeLocked()
		c.woken = c.woken || s.cond != nil
	}
}

// queueLocked lets p wait for windows, room and its turn.
func (s *Stream) queueLocked(p []byte, end bool) {
	s.conn.core.Queue(&s.core, p, end)
	s.conn.sendersLocked(1)
}

// unqueueLocked drops what waits.
func (s *Stream) unqueueLocked() {
	if s.conn.core.Unqueue(&s.core) {
		s.conn.sendersLocked(-1)
	}
}

// sendersLocked counts a sender that has come, or one that is gone.
func (c *Conn) sendersLocked(change int64) {
	c.workers.counts.Add(countStalled, change)
	if c.core.Senders() == int(max(change, 0)) {
		c.workers.counts.Add(countStalledConns, change)
	}
}

// sendBodyLocked sends p, with the end of the answer behind it if end is set. It releases mu while
// it waits for windows and room.
func (s *Stream) sendBodyLocked(p []byte, end bool) error {
	c := s.conn
	most := c.directMostLocked()
	for len(p) >= directBytes && c.takesDirectLocked(min(len(p), most)) && s.sendErrorLocked() == nil && c.core.Window(&s.core) >= directBytes {
		n := s.sendDirectLocked(p[:min(len(p), most)], end && len(p) <= most)
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
	if c.takesLocked(len(p)) {
		c.lendLocked()
		n, err := c.core.Data(&s.core, p, end)
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
	return s.awaitSentLocked(p, end)
}

// takesLocked reports whether the output has room for so many bytes of a body, which go before others.
func (c *Conn) takesLocked(n int) bool {
	return !c.core.Ready() && len(c.core.Output()) < roomBytes && n <= roomBytes && !(c.flushing && n >= directBytes)
}

// awaitSentLocked waits until all of p is in the output, and the end behind it if end is set.
func (s *Stream) awaitSentLocked(p []byte, end bool) error {
	c := s.conn
	if s.hurried {
		s.resetLocked(Cancel, nil)
		c.flushSoonLocked()
		return s.sendErrorLocked()
	}
	s.queueLocked(p, end)
	if c.flushLocked(s); s.core.Queued() {
		c.workers.counts.Add(countStalls, 1)
	} else if c.woken {
		c.yieldLocked()
	}
	for s.core.Queued() {
		if s.answerEndedLocked() {
			s.unqueueLocked()
			return ErrEnded
		}
		s.waitLocked()
	}
	if s.err != nil {
		return s.err
	}
	return c.cutErrorLocked()
}

// yieldLocked lets handlers run that were woken, before the one that has sent goes on: what they have
// may come first, and a goroutine that sends without blocking would fill the socket's buffer alone.
func (c *Conn) yieldLocked() {
	c.woken = false
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
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

// takesDirectLocked reports whether so many bytes of a body may be sent without being copied. It may
// release mu meanwhile.
func (c *Conn) takesDirectLocked(n int) bool {
	if c.server.client && !c.hasRoomForLocked(n) {
		return false
	}
	return !c.core.Ready() && !c.flushing
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
	c.credit = max(c.credit-int32(len(out)+n), 0)
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
