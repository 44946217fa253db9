package reactor

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// timeouts are a connection's timeouts, if the server has any. There is one timer. It is set for the
// timeout that comes first; when it fires it checks whether that has passed, so that
// bytes that come and go need not move it.
type timeouts struct {
	active atomic.Int64 // when a byte was last read or written, by the clock of monotime

	// owned by the loop
	keptSince int64 // when Data last used some of the bytes that are kept; 0 if none are kept
	timer     timer

	partialSince int64 // when the part of a record came that the layer has; 0 if it has none; the loop's
}

// startTimeouts sets the timer, on the loop.
func (c *Conn) startTimeouts() {
	config := &c.loop.server.config
	if !config.hasTimeouts() {
		return
	}
	c.mu.Lock()
	t := &c.extrasLocked().idle
	c.mu.Unlock()
	t.active.Store(monotime.Now())
	if config.idleTimeout > 0 {
		t.timer = c.loop.engine.AfterFunc(config.idleTimeout, c.checkTimeouts)
	}
	if c.unused != nil { // Attach's
		c.markKept()
	}
}

// stopTimeouts ends them.
func (c *Conn) stopTimeouts() {
	if c.loop.server.config.hasTimeouts() && c.more.idle.timer != nil {
		c.more.idle.timer.Stop()
	}
}

func (c *config) hasTimeouts() bool { return c.idleTimeout > 0 || c.readTimeout > 0 }

// touch notes that bytes were read or written. The caller is the loop, or holds mu.
func (c *Conn) touch() {
	if c.loop.server.config.idleTimeout > 0 && c.more != nil { // nil: Write is faster than Open
		c.more.idle.active.Store(monotime.Now())
	}
}

// markKept notes that Data has used some bytes and left others, or that none are left.
func (c *Conn) markKept() {
	d := c.loop.server.config.readTimeout
	if d == 0 || c.phase != open {
		return
	}
	t := &c.more.idle
	if c.unused == nil {
		t.keptSince = 0
		return
	}
	t.keptSince = monotime.Now()
	if t.timer == nil {
		t.timer = c.loop.engine.AfterFunc(d, c.checkTimeouts)
	} else if idle := c.loop.server.config.idleTimeout; idle == 0 || d < idle {
		t.timer.Reset(d)
	}
}

// markPartial notes, after a read of the layer, whether the layer has a part of a record: ReadTimeout
// counts for its rest. got says that the read returned bytes.
func (c *Conn) markPartial(got bool) {
	d := c.loop.server.config.readTimeout
	if d == 0 {
		return
	}
	t := &c.more.idle
	switch {
	case !c.more.layered.IsPartial():
		t.partialSince = 0
	case got || t.partialSince == 0:
		t.partialSince = monotime.Now()
		if t.timer == nil {
			t.timer = c.loop.engine.AfterFunc(d, c.checkTimeouts)
		} else if idle := c.loop.server.config.idleTimeout; idle == 0 || d < idle {
			t.timer.Reset(d)
		}
	}
}

// checkTimeouts ends the connection if a time has passed, and sets the timer again otherwise.
func (c *Conn) checkTimeouts() {
	if c.hungUp || c.lingering || c.phase == closed || c.phase == detached {
		return
	}
	config := &c.loop.server.config
	t := &c.more.idle
	now := monotime.Now()
	if c.isBusy() {
		t.active.Store(now)
	}
	if t.keptSince != 0 && (!c.offered || c.asked.Load()&stopsReading != 0) { // the bytes wait for us, not for the peer
		t.keptSince = now
	}
	if t.partialSince != 0 && c.asked.Load()&stopsReading != 0 {
		t.partialSince = now
	}
	left := time.Duration(-1)
	if d := config.idleTimeout; d > 0 {
		left = max(0, d-time.Duration(now-t.active.Load()))
	}
	if d := config.readTimeout; d > 0 && t.keptSince != 0 {
		if l := max(0, d-time.Duration(now-t.keptSince)); left < 0 || l < left {
			left = l
		}
	}
	if d := config.readTimeout; d > 0 && t.partialSince != 0 {
		if l := max(0, d-time.Duration(now-t.partialSince)); left < 0 || l < left {
			left = l
		}
	}
	switch {
	case left == 0:
		c.end(askClose, c.sock.opError("read", os.ErrDeadlineExceeded))
	case left > 0:
		t.timer.Reset(left)
	}
}

// Timer is a call of After that is to come.
type Timer struct{ call *laterCall }

// laterCall is a call of After. The first to set settled decides, the call or Stop: the engine's timer
// alone can't tell, since between its end and the call the function waits in the loop's queue.
type laterCall struct {
	settled atomic.Bool
	timer   timer
}

// Stop prevents the call, and reports whether it did: false means that the function has been called,
// or was stopped before. It is safe for concurrent use. On a zero Timer it does nothing.
func (t Timer) Stop() bool {
	if t.call == nil || t.call.settled.Swap(true) {
		return false
	}
	t.call.timer.Stop()
	return true
}

// After runs f on the connection's loop once d has passed, a few milliseconds late at most,
// unless the connection is closed or detached by then. It does not wait. Until then c stays in memory,
// even when it has ended: stop a timer that is far off in Close, and before Detach.
func (c *Conn) After(d time.Duration, f func()) Timer {
	call := new(laterCall)
	call.timer = c.loop.engine.AfterFunc(d, func() {
		if c.hungUp || c.lingering || c.phase != open && c.phase != ending || call.settled.Swap(true) {
			return
		}
		c.loop.begin()
		c.enter()
		c.call("After", f)
		c.leave()
	})
	return Timer{call}
}
