package load

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// fakeSession is a server without a network: each operation takes the time that latency says.
type fakeSession struct {
	ops      int
	latency  func(n int) time.Duration
	fail     func(n int) error
	deadline time.Time
}

func (s *fakeSession) op() error {
	s.ops++
	if s.fail != nil {
		if err := s.fail(s.ops); err != nil {
			return err
		}
	}
	time.Sleep(s.latency(s.ops))
	return nil
}

func (s *fakeSession) setDeadline(t time.Time) { s.deadline = t }
func (s *fakeSession) close()                  {}

// always returns a constant latency.
func always(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

// within checks a latency to the three digits that a histogram keeps.
func within(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got < want-want/500 || got > want+want/500 {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// TestClosedLoopFigures drives servers whose latency is known. The time of the
// test is synctest's, so the figures must come out exactly.
func TestClosedLoopFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := []session{
			&fakeSession{latency: always(10 * time.Millisecond)},
			&fakeSession{latency: always(40 * time.Millisecond)},
		}
		m, err := closedLoop(sessions, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		// 100 operations of the one, 25 of the other, and each may begin one more
		// in the very moment that the phase ends.
		if got := m.latency.h.TotalCount(); got < 125 || got > 127 {
			t.Errorf("%d operations, want 125 to 127", got)
		}
		within(t, "median", m.latency.quantile(0.5), 10*time.Millisecond)
		within(t, "p99", m.latency.quantile(0.99), 40*time.Millisecond)
	})
}

// TestOpenLoopShowsStall shows the use of an open loop: a server that is quick except for one stall
// of a second. Its closed-loop latency is quick except for one operation; the operations that were
// due during the stall waited for its end.
func TestOpenLoopShowsStall(t *testing.T) {
	stall := func(n int) time.Duration {
		if n == 500 {
			return time.Second
		}
		return time.Millisecond
	}
	synctest.Test(t, func(t *testing.T) {
		m, err := openLoop([]session{&fakeSession{latency: stall}}, poisson(100, 10*time.Second, 1), time.Sleep)
		if err != nil {
			t.Fatal(err)
		}
		// About a tenth of all operations fell into the stall, evenly: the slowest
		// hundredth of all waited 0.9 s or more, except for chance in the arrivals.
		if got := m.latency.quantile(0.99); got < 850*time.Millisecond || got > time.Second {
			t.Errorf("corrected p99 = %v, want 0.85s to 1s", got)
		}
		if got := m.latency.quantile(0.8); got > 20*time.Millisecond {
			t.Errorf("corrected p80 = %v, want little more than a millisecond", got)
		}
		if got := m.late.quantile(1); got > time.Microsecond {
			t.Errorf("the generator was late by %v, want it on time", got)
		}
	})
}

// TestOpenLoopOverload offers twice the server's capacity: every operation is
// done, and the last one waits as long as the phase lasted.
func TestOpenLoopOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const phase = 2 * time.Second
		schedule := poisson(200, phase, 3)
		began := time.Now()
		m, err := openLoop([]session{&fakeSession{latency: always(10 * time.Millisecond)}}, schedule, time.Sleep)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.latency.h.TotalCount(); got != int64(len(schedule)) {
			t.Errorf("%d operations were done, want all %d of the schedule", got, len(schedule))
		}
		took := time.Since(began)
		if max := m.latency.quantile(1); max < took-phase {
			t.Errorf("the last operation took %v, want at least the %v by which the phase was overdrawn", max, took-phase)
		}
	})
}

func TestPoisson(t *testing.T) {
	const rate, seconds = 1000.0, 100
	a := poisson(rate, seconds*time.Second, 7)
	// The count of a Poisson process is within four standard deviations.
	if n := float64(len(a)); n < rate*seconds-4*316.2 || n > rate*seconds+4*316.2 {
		t.Errorf("%v arrivals in %v s, want %v ±1265", n, seconds, rate*seconds)
	}
	b := poisson(rate, seconds*time.Second, 7)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("equal seeds gave different schedules")
	}
	if c := poisson(rate, seconds*time.Second, 8); c[0] == a[0] {
		t.Error("different seeds gave the same schedule")
	}
	last := time.Duration(-1)
	for _, due := range a {
		if due.at < last || due.at >= seconds*time.Second || due.session != -1 {
			t.Fatalf("arrival %v after one at %v, in a phase of %v s", due, last, seconds)
		}
		last = due.at
	}
	if d := poisson(0.001, time.Second, 7); len(d) != 1 || d[0].at != 0 {
		t.Errorf("an arrival in 1000 s, and a phase of 1 s: got %v, want one at the beginning", d)
	}
}

// TestPausing looks at the pauses of each session and at the order of all arrivals.
func TestPausing(t *testing.T) {
	const sessions, d = 50, 10 * time.Second
	const shortest, longest = 200 * time.Millisecond, 600 * time.Millisecond
	a := pausing(sessions, shortest, longest, d, 7)
	if b := pausing(sessions, shortest, longest, d, 7); fmt.Sprint(a) != fmt.Sprint(b) {
		t.Error("equal seeds gave different schedules")
	}
	if b := pausing(sessions, shortest, longest, d, 8); fmt.Sprint(a) == fmt.Sprint(b) {
		t.Error("different seeds gave the same schedule")
	}
	last := make(map[int]time.Duration)
	for i, due := range a {
		if i > 0 && due.at < a[i-1].at || due.at >= d {
			t.Fatalf("arrival %d is at %v, after one at %v, in a phase of %v", i, due.at, a[i-1].at, d)
		}
		before, used := last[due.session]
		if pause := due.at - before; used && pause < shortest || pause > longest {
			t.Errorf("session %d was left alone for %v, want %v to %v", due.session, pause, shortest, longest)
		}
		last[due.session] = due.at
	}
	if len(last) != sessions {
		t.Errorf("%d sessions were used, want %d", len(last), sessions)
	}
	for i, at := range last {
		if d-at > longest {
			t.Errorf("session %d was used at %v for the last time, of %v", i, at, d)
		}
	}
}

// TestErrorEndsPhase lets one of many sessions fail: the phase ends with its error long before its time.
func TestErrorEndsPhase(t *testing.T) {
	bad := errors.New("went wrong")
	for _, name := range []string{"closed", "open"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sessions []session
				for i := range 8 {
					s := &fakeSession{latency: always(time.Millisecond)}
					if i == 3 {
						s.fail = func(n int) error {
							if n == 2 {
								return bad
							}
							return nil
						}
					}
					sessions = append(sessions, s)
				}
				began := time.Now()
				var err error
				if name == "open" {
					_, err = openLoop(sessions, poisson(10, time.Hour, 1), time.Sleep)
				} else {
					_, err = closedLoop(sessions, time.Hour)
				}
				if !errors.Is(err, bad) {
					t.Errorf("error %v, want %v", err, bad)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the phase went on for %v after the error", took)
				}
			})
		})
	}
}

// TestLatencies: what many goroutines record arrives, with three digits, and can be read as HDR
// histograms are.
func TestLatencies(t *testing.T) {
	const goroutines, each = 8, 1000 // not a multiple of a shard's size
	all := newLatencies()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			s := &shard{to: all}
			defer s.flush()
			for i := range each {
				s.record(time.Duration(i+1) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	encoded, err := all.encode()
	if err != nil {
		t.Fatal(err)
	}
	if all.h, err = hdrhistogram.Decode([]byte(encoded)); err != nil {
		t.Fatal(err)
	}
	if got := all.h.TotalCount(); got != goroutines*each {
		t.Errorf("%d latencies arrived, want %d", got, goroutines*each)
	}
	within(t, "median", all.quantile(0.5), 500*time.Millisecond)
	within(t, "p99.9", all.quantile(0.999), 999*time.Millisecond)
	within(t, "max", all.quantile(1), time.Second)
}
