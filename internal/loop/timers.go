package loop

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// A half's deadline, as monotime has it:
//
//	value           meaning                        set by
//	0 noDeadline    calls wait for as long as it takes   SetDeadline(time.Time{})
//	> 0             calls fail from then on              SetDeadline
//	-1 expired      calls fail at once                   the wheel, or SetDeadline with a time past
const (
	noDeadline = 0
	expired    = -1
)

// deadlineOf translates a time.Time.
//
// "A long time ago", which net/http sets once per request to end a read, is
// known without a look at any clock: the wall clock is never behind the time
// since the system was started (clock_settime(2), EINVAL, since Linux 4.3).
func deadlineOf(t time.Time) int64 {
	switch {
	case t.IsZero():
		return noDeadline
	case t.Unix() <= 1:
		return expired
	}
	at, passed := monotime.Of(t)
	if passed {
		return expired
	}
	return at
}

// timers is a loop's wheel with the one runtime timer that drives it. The runtime timer is armed
// for the wheel's next event and for nothing when the wheel is empty: no loop ticks.
type timers struct {
	loop *Loop // immutable

	fired atomic.Uint64 // deadlines that have come

	mu struct {
		sync.Mutex
		wheel   *wheel
		timer   *time.Timer
		fires   int64 // when timer fires; 0: it isn't armed
		stopped bool
	}
}

func (ts *timers) init(l *Loop) {
	ts.loop = l
	ts.mu.wheel = new(wheel)
	ts.mu.timer = time.AfterFunc(math.MaxInt64, ts.expire)
	ts.mu.timer.Stop()
}

// stop disarms the runtime timer permanently.
func (ts *timers) stop() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.stopped = true
	ts.mu.timer.Stop()
}

// arm makes sure that the entry in the wheel of h, one of f's, is no later than its deadline. It
// makes one if there is none: a connection that waits without a deadline has no memory for it.
func (ts *timers) arm(f *FD, h *half) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	at := h.deadline.Load() // it may have moved since the caller looked
	t := h.timer.Load()
	switch {
	case at <= 0 || t != nil && t.at.Load() <= at:
		return
	case t == nil:
		t = &timer{owner: f}
	default:
		ts.mu.wheel.remove(t)
	}
	f.timed = true
	ts.mu.wheel.add(t, at)
	h.timer.Store(t) // with its time: see half.setDeadline
	ts.scheduleLocked()
}

// disarm takes the entries of f out of the wheel. f is closed, so no call arms them again.
func (ts *timers) disarm(f *FD) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, h := range []*half{&f.rd, &f.wr} {
		if t := h.timer.Load(); t != nil {
			ts.mu.wheel.remove(t)
			h.timer.Store(nil)
		}
	}
	if ts.mu.wheel.len() == 0 && ts.mu.fires != 0 {
		ts.mu.timer.Stop()
		ts.mu.fires = 0
	}
}

// expire runs on the runtime timer's goroutine.
func (ts *timers) expire() {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.mu.fires = 0
	n := monotime.Now()
	ts.mu.wheel.advance(n, func(t *timer) { ts.dueLocked(t, n) })
	ts.scheduleLocked()
}

// dueLocked deals with an entry that the wheel has let go of: either its deadline has come, or it was
// moved later or away since (a move to later only stores the new time) and the entry follows it now.
func (ts *timers) dueLocked(t *timer, n int64) {
	if timer := timerOf(t); timer != nil {
		ts.loop.Submit(timer.f)
		return
	}
	h := t.owner.halfOf(t)
	h.timer.Store(nil) // before deadline is loaded: see half.setDeadline
	for {
		at := h.deadline.Load()
		switch {
		case at <= 0:
			return
		case at > n:
			ts.mu.wheel.add(t, at)
			h.timer.Store(t)
			return
		case h.deadline.CompareAndSwap(at, expired):
			ts.fired.Add(1)
			h.interrupt(t.owner)
			return
		}
	}
}

// scheduleLocked arms the runtime timer for the wheel's next event, if it isn't
// armed for that or for earlier already.
func (ts *timers) scheduleLocked() {
	at, ok := ts.mu.wheel.next()
	if !ok || ts.mu.stopped || ts.mu.fires != 0 && ts.mu.fires <= at {
		return
	}
	if monotime.InBubble() {
		ts.loop.Submit(ts.expire) // which comes back here; Reset would use the bubble's clock
		return
	}
	ts.mu.fires = at
	ts.mu.timer.Reset(time.Duration(at - monotime.Now()))
}
