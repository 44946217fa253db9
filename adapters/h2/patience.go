package h2

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
)

// This file has WriteTimeout. A client that takes nothing for so long is cut off in two steps: its
// streams end, with a GOAWAY behind the output, and after as long again the connection is closed. A
// client that was only stopped, as a program in a debugger, and goes on by then reads what has happened.
//
// No write deadline does that. A deadline would count what the socket takes, which is nothing for
// minutes if the client reads slowly and the buffers are large; crypto/tls can't write after one has
// passed; and it writes in Read, too, so a deadline of an earlier write would end the connection. So
// while anything is written, a timer looks four times in WriteTimeout at what the client has
// acknowledged.

// taking is what is known of a client that is written to. It stays for a quarter of WriteTimeout, so
// that a busy connection sets no timer for each write; one that is quiet has it no longer than restTime.
type taking struct {
	// guarded by mu, except ends
	timer Timer
	calls int           // that write, or may
	ends  atomic.Uint32 // how many writes have ended: all that is known of a connection in memory
	paid  int64         // when WriteTimeout begins: with the first of the calls, or see Sent.Paid
	seen  progress      // what the client had taken at the last look; at first none, as it may be unread
}

// progress is equal to that of before only if the client has taken nothing since.
type progress struct {
	ends uint32
	sent sys.Sent
}

// errNotTaken ends the streams of a client that takes nothing.
var errNotTaken = fmt.Errorf("the client takes nothing of what is sent (WriteTimeout): %w", os.ErrDeadlineExceeded)

// beginWriteLocked begins a call that writes. There are two at most, the sender's and the reader's.
func (c *Conn) beginWriteLocked() *taking {
	if c.server.config.WriteTimeout <= 0 || c.phase == closed {
		return nil
	}
	if c.taking == nil {
		c.taking = new(taking)
		c.watchTakingLocked(c.server.config.WriteTimeout)
	}
	t := c.taking
	if t.calls++; t.calls == 1 {
		t.paid, t.seen.ends = max(t.paid, c.below.now()), t.ends.Load()
	}
	return t
}

// endWriteLocked ends the call.
func (c *Conn) endWriteLocked() {
	if c.taking != nil { // it is nil once the connection is closed
		c.taking.calls--
	}
}

// wrote notes that a part of a call's bytes was taken. t may be nil.
func (t *taking) wrote() {
	if t != nil {
		t.ends.Add(1)
	}
}

// watchTakingLocked looks at the client in a while, or when so much time has passed.
func (c *Conn) watchTakingLocked(left time.Duration) {
	c.taking.timer = c.afterFunc(min(left, c.server.config.WriteTimeout/4), func() {
		c.workers.Serve(item{c: c, kind: itemTaking}) // asking the kernel may block
	})
}

// checkTaking is a worker's look at the client.
func (c *Conn) checkTaking() {
	sent := seam.Sent(c.below.socket())
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
	now := c.below.now()
	if seen := (progress{t.ends.Load(), sent}); t.seen != seen {
		t.paid = sent.Paid(t.seen.sent, t.paid, now, c.server.config.WriteTimeout)
		t.seen = seen
	}
	left := time.Duration(t.paid-now) + c.server.config.WriteTimeout
	if left <= 0 {
		c.stalledLocked()
		t.paid, left = now, c.server.config.WriteTimeout
	}
	if c.taking != nil {
		c.watchTakingLocked(left)
	}
}

// stalledLocked is for a client that has taken nothing for WriteTimeout.
func (c *Conn) stalledLocked() {
	if c.phase == alive {
		c.countTimeout(timeoutRead)
	}
	if c.phase != alive || !c.core.Settled() {
		c.failLocked(NoError, errNotTaken)
		return
	}
	c.lendLocked()
	c.core.GoAway(NoError, fmt.Sprintf("the client has taken nothing for %v", c.server.config.WriteTimeout))
	c.clock.makeEnding().stalled = true
	c.hangUpLocked(&ConnError{Code: NoError, Err: errNotTaken})
}

// restTakingLocked is for a connection that has been quiet: what is sent next is watched from then on.
// If the timer has fired its look is about to do the same.
func (c *Conn) restTakingLocked() {
	if t := c.taking; t != nil && t.calls == 0 && t.timer.Stop() {
		c.taking = nil
	}
}

// stopTakingLocked is for a connection that is closed.
func (c *Conn) stopTakingLocked() {
	if c.taking != nil {
		c.taking.timer.Stop()
		c.taking = nil
	}
}
