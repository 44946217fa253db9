package h2

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2/internal/below"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
)

// output has the bytes that wait in the core to be sent, and says which goroutine sends them.
//
//	flushing  flushQueued  meaning                                    leaves by
//	false     false        nothing waits, or a handler that is        flushSoon, flush, sendDirect
//	                       queued will send it
//	false     true         a worker will send                         its turn comes: flush
//	true      any          a goroutine sends, without mu, until       nothing is left; an error;
//	                       nothing is left                            flushSoon, if it is a handler's
//
// Bodies for which the windows or the output have no space wait in the core, whose schedule decides
// which goes next: see http2.Conn.Queue. A handler waits until all its bytes are in the output; the
// goroutine that flushes moves them there. So a WINDOW_UPDATE doesn't wake goroutines that would only
// have to wait again.
type output struct {
	core        http2.Conn
	memory      pool.Growable // of the core's output, once it is lent
	lent        bool
	flushing    bool
	flushQueued bool
	woken       bool  // the pump has woken a handler
	credit      int32 // of a client: how many bytes can be written at once, at least; see maySend
}

// lend gives the core's output memory before the frames of an answer are made. Otherwise it would grow
// several times, and move each time.
func (o *output) lend() {
	if !o.lent {
		o.lent = true
		o.core.LendOutput(o.memory.Memory())
	}
}

// take returns the output, and the memory to release when it is sent.
func (o *output) take() (p []byte, memory pool.Growable) {
	p = o.core.TakeOutput()
	if o.lent {
		memory = o.memory
		memory.Set(p)
		o.memory, o.lent = pool.Growable{}, false
	}
	return p, memory
}

func (o *output) drop() {
	_, memory := o.take()
	memory.Release()
}

// endFlush is for a goroutine that has stopped sending. over says that nothing more will be sent.
func (o *output) endFlush(over bool) {
	o.flushing = false
	if over {
		o.drop()
	}
}

// waits reports whether there is something to send.
func (o *output) waits() bool { return len(o.core.Output()) > 0 || o.core.Ready() }

// takes reports whether a body of this many bytes can be copied to the output at once: there is space,
// and no other goes first.
func (o *output) takes(bytes int) bool {
	return !o.core.Ready() && len(o.core.Output()) < outputMost && bytes <= outputMost && !(o.flushing && bytes >= directBytes)
}

func (o *output) directMost() int {
	if o.core.Prioritizes() {
		return directFirst
	}
	return directMost
}

const (
	outputMost  = 64 << 10  // with more in the output a handler waits for space in it
	directBytes = 16 << 10  // a body as long is sent without being copied
	directMost  = 256 << 10 // by one call
	directFirst = 32 << 10  // the same, if the client may want to have something else first
)

// flushLocked sends the output on a worker, unless another goroutine is already sending. It releases mu
// while it sends.
func (c *Conn) flushLocked() {
	if c.beginFlushLocked() {
		c.flushAllLocked(nil)
	}
}

// beginFlushLocked reports whether the caller is to send, and notes that it does.
func (c *Conn) beginFlushLocked() bool {
	if c.flushing || c.phase > hanging {
		return false
	}
	if c.clock.ends.cut != nil {
		c.drop()
		return false
	}
	c.flushing = true
	return true
}

// flushAllLocked sends the output.
//
// s is the stream whose handler lends its goroutine, or nil for a worker. When everything of s is
// sent, a worker goes on: other streams may never stop, and s's handler could send nothing of its own.
func (c *Conn) flushAllLocked(s *Stream) {
	done := false
	for c.phase <= hanging {
		if done && c.waits() {
			c.flushing = false
			c.flushSoonLocked()
			return
		}
		c.pumpLocked()
		if len(c.core.Output()) == 0 {
			c.drop() // the memory was not needed
			c.sentLocked()
			break
		}
		if s != nil && !c.side.maySend(c, 0) {
			c.flushing = false
			c.flushSoonLocked() // a worker may wait; this caller returns when its stream ends
			return
		}
		done = s != nil && !s.core.Queued() // what s has is in this piece
		p, memory := c.take()
		if !c.writeLocked(len(p), memory, func(ends *atomic.Uint32) error { return c.below.Write(p, ends) }) {
			break
		}
	}
	c.endFlush(c.phase == closed)
}

// writeLocked calls write for n bytes in memory, which it then releases, and reports whether they were
// written. It releases mu while it writes.
func (c *Conn) writeLocked(n int, memory pool.Growable, write func(ends *atomic.Uint32) error) bool {
	c.credit = max(c.credit-int32(n), 0)
	t := c.beginWriteLocked()
	c.mu.Unlock()
	err := write(t.counter())
	memory.Release()
	c.mu.Lock()
	c.taking.end()
	if err == nil {
		return true
	}
	if below.IsTimeout(err) && c.phase != closed {
		c.workers.counts.Add(timeoutRead, 1)
	}
	c.side.writeFailed(c, err)
	return false
}

// flushSoonLocked makes a worker send the output, unless that is going to happen anyway. It doesn't
// block.
func (c *Conn) flushSoonLocked() {
	if c.flushing || c.flushQueued || c.phase > hanging || c.phase == alive && !c.waits() {
		return
	}
	c.flushQueued = true
	c.workers.Serve(item{c: c, kind: itemFlush})
}

// pumpLocked moves bodies that wait into the output, as far as windows and space go.
func (c *Conn) pumpLocked() {
	if !c.core.Ready() {
		return
	}
	c.lend()
	for st := c.core.Pump(outputMost); st != nil; st = c.core.Pump(outputMost) {
		s := st.User.(*Stream)
		c.sendersLocked(-1)
		s.wakeLocked()
		c.woken = c.woken || s.cond != nil
	}
}

// sendersLocked counts a sender that has come or gone.
func (c *Conn) sendersLocked(change int64) {
	c.workers.counts.Add(countStalled, change)
	if c.core.Senders() == int(max(change, 0)) {
		c.workers.counts.Add(countStalledConns, change)
	}
}

// The rest of this file is WriteTimeout. A client that takes nothing for that long is cut off in two
// steps: its streams end, with a GOAWAY after the output, and after the same time again the connection
// is closed. A client that was only stopped, like a program in a debugger, and goes on in time can
// read what has happened.
//
// A write deadline can't do that. It would count what the socket takes, which is nothing for minutes if
// the client reads slowly and the buffers are large. And crypto/tls can't write after a deadline has
// passed; it also writes in Read, so the deadline of an earlier write would end the connection. So while
// anything is written, a timer checks four times in WriteTimeout what the client has acknowledged.

// taking is what is known about a client that is written to. It stays for a quarter of WriteTimeout, so
// that a busy connection doesn't set a timer for each write; a quiet one has it no longer than restTime.
type taking struct {
	// guarded by mu, except ends
	timer Timer
	calls int           // that write, or may
	ends  atomic.Uint32 // how many writes have ended: all that is known of a connection in memory
	paid  int64         // when WriteTimeout begins: with the first of the calls, or see Sent.Paid
	seen  progress      // what the client had taken at the last look; at first none, as it may be unread
}

// progress equals an earlier one only if the client has taken nothing since.
type progress struct {
	ends uint32
	sent sys.Sent
}

// errNotTaken ends the streams of a client that takes nothing.
var errNotTaken = fmt.Errorf("the client takes nothing of what is sent (WriteTimeout): %w", os.ErrDeadlineExceeded)

// beginWriteLocked begins a call that writes. There are two at most, the sender's and the reader's.
func (c *Conn) beginWriteLocked() *taking {
	if c.config.WriteTimeout <= 0 || c.phase == closed {
		return nil
	}
	if c.taking == nil {
		c.taking = new(taking)
		c.taking.watchLocked(c, c.config.WriteTimeout)
	}
	t := c.taking
	if t.calls++; t.calls == 1 {
		t.paid, t.seen.ends = max(t.paid, c.below.Now()), t.ends.Load()
	}
	return t
}

// end ends the call. t may be nil: the connection is closed.
func (t *taking) end() {
	if t != nil {
		t.calls--
	}
}

// counter returns what counts the writes of a call. t may be nil.
func (t *taking) counter() *atomic.Uint32 {
	if t == nil {
		return nil
	}
	return &t.ends
}

// watchLocked checks the client after a while, or when the time left has passed.
func (t *taking) watchLocked(c *Conn, left time.Duration) {
	t.timer = c.below.AfterFunc(min(left, c.config.WriteTimeout/4), func() {
		c.workers.Serve(item{c: c, kind: itemTaking}) // asking the kernel may block
	})
}

// checkTaking checks whether the client has taken something, on a worker.
func (c *Conn) checkTaking() {
	sent := seam.Sent(c.below.Socket())
	c.mu.Lock()
	defer c.unlock()
	t := c.taking
	switch {
	case t == nil:
		return
	case t.calls == 0:
		c.taking = nil
		return
	}
	now := c.below.Now()
	if seen := (progress{t.ends.Load(), sent}); t.seen != seen {
		t.paid = sent.Paid(t.seen.sent, t.paid, now, c.config.WriteTimeout)
		t.seen = seen
	}
	left := time.Duration(t.paid-now) + c.config.WriteTimeout
	if left <= 0 {
		t.stalledLocked(c)
		t.paid, left = now, c.config.WriteTimeout
	}
	if c.taking != nil {
		t.watchLocked(c, left)
	}
}

// stalledLocked is for a client that has taken nothing for WriteTimeout.
func (t *taking) stalledLocked(c *Conn) {
	if c.phase == alive {
		c.workers.counts.Add(timeoutRead, 1)
	}
	if c.phase != alive || !c.core.Settled() {
		c.failLocked(errNotTaken)
		return
	}
	c.lend()
	c.core.GoAway(NoError, fmt.Sprintf("the client has taken nothing for %v", c.config.WriteTimeout))
	c.clock.makeEnding().stalled = true
	c.hangUpLocked(&ConnError{Code: NoError, Err: errNotTaken})
}

// rest returns what is left for a connection that has been quiet: the next bytes are watched from the
// time they are sent. If the timer has fired, its check is about to do the same.
func (t *taking) rest() *taking {
	if t != nil && t.calls == 0 && t.timer.Stop() {
		return nil
	}
	return t
}

func (t *taking) stop() {
	if t != nil {
		t.timer.Stop()
	}
}
