package loop

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// The tests of this file drive a half by hand, without a loop and without a
// descriptor: edges, deadlines and Close come when the test wants them to.

// newLooplessFD returns a descriptor that no loop knows: nothing happens to it
// except the test's own steps. Submitted tasks stay in the queue of its loop.
func newLooplessFD() *FD {
	return &FD{loop: &Loop{poller: &poller{wakefd: -1}}}
}

// trackParkers makes sure that every channel used from now on is empty when the test ends: a token
// left in one would wake a later waiter for nothing, a token too many would block the loop.
func trackParkers(t *testing.T) {
	t.Helper()
	var mu sync.Mutex
	var made []chan struct{}
	old := parkers.New
	for range 2 { // a sync.Pool forgets its contents in two collections
		runtime.GC()
	}
	parkers.New = func() any {
		p := make(chan struct{}, 1)
		mu.Lock()
		defer mu.Unlock()
		made = append(made, p)
		return p
	}
	t.Cleanup(func() {
		parkers.New = old
		if len(made) == 0 {
			t.Error("no channel was made: what was there to track?")
		}
		for i, p := range made {
			if len(p) != 0 {
				t.Errorf("channel %d of %d holds a token that no waiter took", i, len(made))
			}
		}
	})
}

// A waiter goes through all events that wake it, in any interleaving: no wake-up is
// lost, none is delivered twice.
//
// Producers count up and signal; one consumer clears ready and waits, as Read does, and is done when it
// has seen all. Meanwhile others interrupt it, set deadlines in the past and take them back.
func TestHalfStress(t *testing.T) {
	const producers, items = 4, 20_000
	trackParkers(t)
	f := newLooplessFD()
	s := &f.rd
	var available atomic.Int64
	var running sync.WaitGroup
	stop := make(chan struct{})
	disturb := func(how func()) {
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					how()
					runtime.Gosched()
				}
			}
		})
	}
	disturb(func() { s.interrupt(f) })
	disturb(func() {
		_ = f.SetNoWait(true)
		_ = f.SetNoWait(false)
	})
	disturb(func() {
		s.setDeadline(f, expired)
		s.setDeadline(f, noDeadline)
	})
	disturb(func() {
		s.setDeadline(f, expired)
		runtime.Gosched()
		s.setDeadline(f, noDeadline)
	})
	for range producers {
		running.Go(func() {
			for range items {
				for available.Load() >= producers {
					runtime.Gosched() // or the consumer need never wait
				}
				available.Add(1)
				s.signal(ready, 0, nil)
				if rand.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	timeouts, woken := 0, 0
	testnet.Within(t, "the consumer", func() {
		for got := int64(0); got < producers*items; {
			if s.clearReady() {
				got += available.Swap(0)
				continue
			}
			switch err := s.wait(f); err {
			case nil:
				woken++
			case errTimeout, ErrWouldWait:
				timeouts++
				runtime.Gosched()
			default:
				t.Errorf("wait: got %v, want nil, %v or %v", err, errTimeout, ErrWouldWait)
				return
			}
		}
	})
	close(stop)
	running.Wait()
	if woken == 0 || timeouts == 0 {
		t.Logf("%d wake-ups, %d timeouts: not much of a stress", woken, timeouts)
	}
}

// Close, a deadline and SetNoWait come, each alone, in the very moment in which a goroutine begins to
// wait: the second must see the first, and the token that is owed for a wait that was given up is
// taken all the same.
func TestHalfWaitAgainstInterrupt(t *testing.T) {
	causes := []struct {
		name string
		come func(f *FD)
		want error
	}{
		{"closed", func(f *FD) {
			f.life.word.Store(lifeClosed | 1)
			f.rd.interrupt(f)
		}, ErrClosed},
		{"deadline", func(f *FD) { f.rd.setDeadline(f, expired) }, errTimeout},
		{"no wait", func(f *FD) { _ = f.SetNoWait(true) }, ErrWouldWait},
	}
	for _, cause := range causes {
		t.Run(cause.name, func(t *testing.T) {
			trackParkers(t)
			f := newLooplessFD()
			var err error
			collide(t, 20_000,
				func() {
					f.life.word.Store(1)
					f.rd.state.Store(0)
					f.rd.deadline.Store(noDeadline)
				},
				func() {
					for err = nil; err == nil; { // as Read does
						err = f.rd.wait(f)
					}
				},
				func() { cause.come(f) },
				func(round int) bool {
					if err != cause.want {
						t.Errorf("round %d: wait: got %v, want %v", round, err, cause.want)
					}
					if st := f.rd.state.Load(); st&^noWait != 0 {
						t.Errorf("round %d: state is %04b, want no more than noWait", round, st)
					}
					return !t.Failed()
				})
		})
	}
}
