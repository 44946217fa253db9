package loop

import (
	"math"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
)

func TestDeadlineOf(t *testing.T) {
	before := monotime.Now()
	day := int64(24 * time.Hour)
	tests := []struct {
		name     string
		t        time.Time
		min, max int64
	}{
		{"zero", time.Time{}, noDeadline, noDeadline},
		{"zero in another zone", time.Time{}.In(time.FixedZone("x", 3600)), noDeadline, noDeadline},
		{"1970", time.Unix(0, 0), expired, expired},
		{"long ago", time.Date(-290_000_000, 1, 1, 0, 0, 0, 0, time.UTC), expired, expired},
		{"a nanosecond ago", time.Now().Add(-1), expired, expired},
		{"a nanosecond ago by the wall clock", time.Now().Add(-1).Round(0), expired, expired},
		{"now", time.Now(), expired, expired},
		{"before the process started", time.Now().Add(-time.Hour), expired, expired},
		{"tomorrow", time.Now().Add(24 * time.Hour), before + day, before + day + int64(time.Hour)},
		{"tomorrow by the wall clock", time.Now().Add(24 * time.Hour).Round(0), before + day - int64(time.Second), before + day + int64(time.Hour)},
		{"in 250 years", time.Now().AddDate(250, 0, 0), 249 * 365 * day, math.MaxInt64},
		{"in 10,000 years", time.Now().AddDate(10_000, 0, 0), math.MaxInt64 - 365*day, math.MaxInt64},
		{"the end of time", time.Unix(1<<62, 0), math.MaxInt64 - 365*day, math.MaxInt64},
		{"as late as can be by the monotonic clock", time.Now().Add(math.MaxInt64), math.MaxInt64 - 365*day, math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := deadlineOf(tt.t); got < tt.min || got > tt.max {
				t.Errorf("deadlineOf(%v): got %d, want from %d to %d", tt.t, got, tt.min, tt.max)
			}
		})
	}
}

func TestDeadlineAfterClose(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
		_ = f.SetDeadline(time.Now().Add(time.Hour))
		wheelLen := func() int {
			f.loop.timers.mu.Lock()
			defer f.loop.timers.mu.Unlock()
			return f.loop.timers.mu.wheel.len()
		}
		if n := wheelLen(); n != 2 {
			t.Errorf("timers in the wheel: got %d, want 2", n)
		}
		closeFD(t, f)
		if n := wheelLen(); n != 0 {
			t.Errorf("timers in the wheel after Close: got %d, want 0", n)
		}
		f.loop.timers.mu.Lock()
		if fires := f.loop.timers.mu.fires; fires != 0 {
			t.Errorf("the runtime timer fires at %d with an empty wheel, want it to be off", fires)
		}
		f.loop.timers.mu.Unlock()
	})
}

// Moving a deadline later must leave the wheel alone: that makes it cheap
// enough to do for every request.
func TestDeadlineLaterIsLazy(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overTCP)
	soon := time.Now().Add(time.Hour)
	_ = f.SetReadDeadline(soon)
	armed := f.rd.timer.Load().at.Load()
	if want := deadlineOf(soon); armed != want {
		t.Fatalf("armed at %d, want %d", armed, want)
	}
	for _, at := range []time.Time{soon.Add(1), soon.Add(time.Hour), {}, soon, time.Unix(1, 0), soon.Add(time.Minute)} {
		_ = f.SetReadDeadline(at)
		if got := f.rd.timer.Load().at.Load(); got != armed {
			t.Fatalf("after moving the deadline to %v the entry is at %d, want it where it was, at %d", at, got, armed)
		}
	}
	_ = f.SetReadDeadline(soon.Add(-1))
	if got := f.rd.timer.Load().at.Load(); got != armed-1 {
		t.Fatalf("after moving the deadline a nanosecond earlier the entry is at %d, want %d", got, armed-1)
	}
}

// An entry comes due in the very moment in which the deadline is moved: the second must see the
// first one's change, or the new deadline never passes.
func TestDeadlineAgainstExpiry(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overTCP)
	s, ts := &f.rd, &g.Loop(0).timers
	base := time.Now().Add(time.Hour)
	old, moved := deadlineOf(base), deadlineOf(base.Add(time.Hour))
	for _, before := range []int64{noDeadline, old} {
		collide(t, 15_000,
			func() {
				s.setDeadline(f, old)
				s.setDeadline(f, before)
			},
			func() { s.setDeadline(f, moved) },
			func() { // the wheel's step when it is time for the entry
				ts.mu.Lock()
				defer ts.mu.Unlock()
				entry := s.timer.Load()
				ts.mu.wheel.remove(entry)
				ts.dueLocked(entry, old)
			},
			func(round int) bool {
				ts.mu.Lock()
				defer ts.mu.Unlock()
				if at := s.deadline.Load(); at != moved && at != expired {
					t.Errorf("round %d: the deadline is %d, want %d", round, at, moved)
				} else if entry := s.timer.Load(); at == moved && (entry == nil || !entry.armed() || entry.at.Load() > at) {
					t.Errorf("round %d: the deadline is %d, its entry is %+v", round, at, entry)
				}
				return !t.Failed()
			})
	}
	_ = f.SetReadDeadline(time.Time{})
}
