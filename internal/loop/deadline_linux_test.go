package loop

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
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

// wantTimeout checks that a call failed for its deadline, and not before it.
func wantTimeout(t testing.TB, what string, ch <-chan result, deadline time.Time) {
	t.Helper()
	r := await(t, what, ch)
	if r.err != os.ErrDeadlineExceeded {
		t.Errorf("%s: got %v, want %v", what, r, os.ErrDeadlineExceeded)
	}
	if early := time.Until(deadline); early > 0 {
		t.Errorf("%s timed out %v before its deadline", what, early)
	}
}

// blockedCalls are calls that wait until something is done about it: the
// reading ones because there is nothing to read, the writing ones because they
// write more than the kernel takes.
var blockedCalls = []struct {
	name string
	half func(f *FD) *half
	call func(f *FD) (int, error)
	set  func(f *FD, t time.Time) error
}{
	{"Read", func(f *FD) *half { return &f.rd }, func(f *FD) (int, error) { return f.Read(make([]byte, 8)) }, (*FD).SetReadDeadline},
	{"Write", func(f *FD) *half { return &f.wr }, func(f *FD) (int, error) { return f.Write(manyBytes) }, (*FD).SetWriteDeadline},
	{"RawRead", func(f *FD) *half { return &f.rd }, func(f *FD) (int, error) { return 0, f.RawRead(func(uintptr) bool { return false }) }, (*FD).SetReadDeadline},
	{"RawWrite", func(f *FD) *half { return &f.wr }, rawWriteForever, (*FD).SetWriteDeadline},
	{"Stream.Read", func(f *FD) *half { return &f.rd }, func(f *FD) (int, error) { return 0, f.Stream().Read(func(uintptr) bool { return false }) }, (*FD).SetReadDeadline},
	{"Stream.Write", func(f *FD) *half { return &f.wr }, func(f *FD) (int, error) { return 0, f.Stream().Write(func(uintptr) bool { return false }) }, (*FD).SetWriteDeadline},
	{"Read, both", func(f *FD) *half { return &f.rd }, func(f *FD) (int, error) { return f.Read(make([]byte, 8)) }, (*FD).SetDeadline},
	{"Write, both", func(f *FD) *half { return &f.wr }, func(f *FD) (int, error) { return f.Write(manyBytes) }, (*FD).SetDeadline},
}

func rawWriteForever(f *FD) (int, error) {
	return 0, f.RawWrite(func(uintptr) bool { return false })
}

// onEveryBlockedCall runs test for every blocking call, engine and transport.
func onEveryBlockedCall(t *testing.T, test func(t *testing.T, f *FD, s *half, call func() (int, error), set func(time.Time) error)) {
	for _, c := range blockedCalls {
		t.Run(c.name, func(t *testing.T) {
			onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
				test(t, f, c.half(f), func() (int, error) { return c.call(f) }, func(at time.Time) error { return c.set(f, at) })
			})
		})
	}
}

func TestDeadlinePast(t *testing.T) {
	onEveryBlockedCall(t, func(t *testing.T, f *FD, s *half, call func() (int, error), set func(time.Time) error) {
		blocked := start(call)
		awaitWaiting(t, s)
		past := time.Now()
		if err := set(past); err != nil {
			t.Fatalf("setting the deadline: %v", err)
		}
		wantTimeout(t, "the blocked call", blocked, past)
		wantTimeout(t, "a new call", start(call), past)
		if f.timed {
			t.Error("a deadline in the past was put into the wheel, want it to take effect without")
		}
	})
}

func TestDeadlineFuture(t *testing.T) {
	onEveryBlockedCall(t, func(t *testing.T, f *FD, s *half, call func() (int, error), set func(time.Time) error) {
		deadline := time.Now().Add(10 * time.Millisecond)
		_ = set(deadline)
		wantTimeout(t, "the blocked call", start(call), deadline)
		wantTimeout(t, "a new call", start(call), deadline)
		// It can be set again, to a time of the wall clock too.
		deadline = time.Now().Add(10 * time.Millisecond).Round(0)
		_ = set(deadline)
		wantTimeout(t, "the blocked call", start(call), deadline)
	})
}

func TestDeadlineMovedWhileWaiting(t *testing.T) {
	onEveryBlockedCall(t, func(t *testing.T, f *FD, s *half, call func() (int, error), set func(time.Time) error) {
		blocked := start(call)
		awaitWaiting(t, s)
		_ = set(time.Now().Add(time.Hour))
		deadline := time.Now().Add(10 * time.Millisecond)
		_ = set(deadline)
		wantTimeout(t, "with an earlier deadline", blocked, deadline)

		_ = set(time.Now().Add(time.Hour))
		blocked = start(call)
		awaitWaiting(t, s)
		soon := time.Now().Add(5 * time.Millisecond)
		_ = set(soon)
		deadline = time.Now().Add(30 * time.Millisecond)
		_ = set(deadline)
		if !time.Now().Before(soon) { // we were held up
			deadline = soon
		}
		wantTimeout(t, "with a later deadline", blocked, deadline)
	})
}

// A deadline that is taken away must not end anything, also when its entry in
// the wheel comes due.
func TestDeadlineCleared(t *testing.T) {
	onEveryBlockedCall(t, func(t *testing.T, f *FD, s *half, call func() (int, error), set func(time.Time) error) {
		var blocked <-chan result
		for inTime := false; !inTime; {
			blocked = start(call)
			awaitWaiting(t, s)
			soon := time.Now().Add(5 * time.Millisecond)
			_ = set(soon)
			_ = set(time.Time{})
			if inTime = time.Now().Before(soon); !inTime { // it may have passed: once more
				_ = set(time.Unix(1, 0))
				await(t, "the blocked call", blocked)
				_ = set(time.Time{})
			}
		}
		eventually(t, "the wheel let go of the old deadline", func() bool { return s.timer.Load() == nil })
		settle(t, f.loop)
		select {
		case r := <-blocked:
			t.Fatalf("the blocked call returned %v, want it to go on waiting", r)
		default:
		}
		closeFD(t, f)
		if r := await(t, "the blocked call", blocked); r.err != ErrClosed {
			t.Errorf("after Close: got %v, want %v", r, ErrClosed)
		}
	})
}

func TestDeadlinesAreSeparate(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		_ = f.SetReadDeadline(time.Unix(1, 0))
		if n, err := f.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("Write past the read deadline: got %d, %v, want 1, nil", n, err)
		}
		mustWrite(t, peer, "data")
		if n, err := f.Read(make([]byte, 8)); n != 0 || err != os.ErrDeadlineExceeded {
			t.Errorf("Read past the deadline with data there: got %d, %v, want 0, a timeout as in package net", n, err)
		}
		_ = f.SetReadDeadline(time.Time{})
		_ = f.SetWriteDeadline(time.Unix(1, 0))
		mustRead(t, f, "data")
		if n, err := f.Write([]byte("x")); n != 0 || err != os.ErrDeadlineExceeded {
			t.Errorf("Write past the deadline: got %d, %v, want 0, a timeout", n, err)
		}
	})
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
		for _, set := range []func(*FD, time.Time) error{(*FD).SetDeadline, (*FD).SetReadDeadline, (*FD).SetWriteDeadline} {
			for _, at := range []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Hour)} {
				if err := set(f, at); err != ErrClosed {
					t.Errorf("setting a deadline after Close: got %v, want %v", err, ErrClosed)
				}
			}
		}
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

// Many descriptors, each with a deadline of its own, moved about at random: all
// end, none too early.
func TestDeadlineCrowd(t *testing.T) {
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		const crowd = 100
		var running sync.WaitGroup
		for i := range crowd {
			f, peer := newPair(t, g.LeastLoaded(), overUnix)
			_ = peer
			running.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 1))
				for range 5 {
					var deadline time.Time
					for range 1 + rng.IntN(4) {
						deadline = time.Now().Add(time.Duration(rng.IntN(20_000)) * time.Microsecond)
						if err := f.SetDeadline(deadline); err != nil {
							t.Errorf("SetDeadline: %v", err)
						}
						if rng.IntN(2) == 0 {
							runtime.Gosched()
						}
					}
					n, err := f.Read(make([]byte, 1))
					if early := time.Until(deadline); n != 0 || err != os.ErrDeadlineExceeded || early > 0 {
						t.Errorf("Read: got %d, %v, %v before the deadline, want 0, a timeout, not before", n, err, early)
					}
				}
			})
		}
		testnet.Within(t, "all deadlines", running.Wait)
	})
}

// A deadline that is moved on time and again, just before it passes or just after,
// while calls begin and end: they may time out, but never before the time that was
// set when they began.
func TestDeadlineChase(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			t.Run(tr.name, func(t *testing.T) {
				f, _ := newPair(t, g.Loop(0), tr)
				start := time.Now()
				var set atomic.Int64 // the deadline that has been set, after start
				stop := make(chan struct{})
				var running sync.WaitGroup
				running.Go(func() { // deadlines only ever move later
					for at := time.Duration(0); ; {
						select {
						case <-stop:
							return
						default:
						}
						at = max(at, time.Since(start)) + time.Duration(rand.IntN(1_500))*time.Microsecond
						_ = f.SetReadDeadline(start.Add(at))
						set.Store(int64(at))
						time.Sleep(time.Duration(rand.IntN(1_500)) * time.Microsecond)
					}
				})
				timeouts := 0
				for end := time.Now().Add(150 * time.Millisecond); timeouts == 0 || time.Now().Before(end); {
					notBefore := start.Add(time.Duration(set.Load()))
					_, err := f.Read(make([]byte, 1))
					if early := time.Until(notBefore); err != os.ErrDeadlineExceeded || early > 0 {
						t.Errorf("Read: got %v, %v before the deadline, want a timeout, not before", err, early)
						break
					}
					timeouts++
					runtime.Gosched()
				}
				close(stop)
				testnet.Within(t, "the one who sets deadlines", running.Wait)
			})
		}
	})
}

// Deadlines are set from everywhere at once; the one that is set last counts.
func TestDeadlineLastOneCounts(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overTCP)
	for round := range 200 {
		var running sync.WaitGroup
		for i := range 4 {
			running.Go(func() {
				at := []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Hour), time.Now().Add(time.Millisecond)}[i]
				for range 20 {
					_ = f.SetReadDeadline(at)
				}
			})
		}
		running.Wait()
		deadline := time.Now().Add(time.Duration(rand.IntN(2_000)) * time.Microsecond)
		_ = f.SetReadDeadline(deadline)
		wantTimeout(t, fmt.Sprintf("Read of round %d", round), start(func() (int, error) { return f.Read(make([]byte, 1)) }), deadline)
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
