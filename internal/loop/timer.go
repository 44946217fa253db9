package loop

import (
	"time"
	"unsafe"

	"github.com/percore/percore/internal/monotime"
)

// Timer calls a function on the goroutine of a loop, after a time: see [Loop.AfterFunc]. Its methods
// are safe for concurrent use.
//
//	state      wheel  meaning                    leaves by
//	waiting    in     it will fire               the wheel: submitted; Stop: stopped
//	submitted  out    the function is a task     the loop runs it; Reset: waiting, too
//	stopped    out    nothing will happen        Reset: waiting
type Timer struct {
	entry timer // first: see timerOf; guarded by the loop's timers
	loop  *Loop
	f     func()
}

// AfterFunc runs f on the loop's goroutine once d has passed. The loop starts if it hasn't had a
// descriptor; if it can't, or the group ends, f is not called.
func (l *Loop) AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{loop: l, f: f}
	t.Reset(d)
	return t
}

// Stop prevents the timer from firing and reports whether it was waiting.
func (t *Timer) Stop() bool {
	if t.loop.start() != nil {
		return false
	}
	ts := &t.loop.timers
	ts.mu.Lock()
	defer ts.mu.Unlock()
	waiting := t.entry.armed()
	ts.mu.wheel.remove(&t.entry)
	return waiting
}

// Reset moves the timer to d from now, and reports whether it was waiting.
func (t *Timer) Reset(d time.Duration) bool {
	if t.loop.start() != nil {
		return false
	}
	at := monotime.After(d)
	ts := &t.loop.timers
	ts.mu.Lock()
	defer ts.mu.Unlock()
	waiting := t.entry.armed()
	ts.mu.wheel.remove(&t.entry)
	ts.mu.wheel.add(&t.entry, at)
	ts.scheduleLocked()
	return waiting
}

// timerOf returns the Timer that an entry of the wheel is the first field of, or nil if the entry is
// a deadline.
func timerOf(entry *timer) *Timer {
	if entry.owner != nil {
		return nil
	}
	return (*Timer)(unsafe.Pointer(entry))
}
