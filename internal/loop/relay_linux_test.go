package loop

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// wakeThrough has r wake n readers.
func wakeThrough(r *relay, n int) (halves []*half) {
	for range n {
		h := &half{parker: make(chan struct{}, 1)}
		halves = append(halves, h)
		r.wake(h)
	}
	return halves
}

// Readers are woken in the order in which their waits end, each by the one before.
func TestRelay(t *testing.T) {
	const n = 5
	var r relay
	halves := wakeThrough(&r, n)
	r.pass(halves[n-1]) // woken by a deadline, say
	for i := range halves {
		woken := slices.IndexFunc(halves, func(h *half) bool { return len(h.parker) == 1 })
		if woken != i {
			t.Fatalf("got reader %d woken, want %d", woken, i)
		}
		<-halves[i].parker
		r.pass(halves[i])
	}
	if r.current.Load() != nil || len(r.queue) != 0 {
		t.Errorf("got %p and a queue of %d readers after the last, want none", r.current.Load(), len(r.queue))
	}
}

// A burst's large queue is not kept.
func TestRelayQueue(t *testing.T) {
	var r relay
	for _, h := range wakeThrough(&r, 3*relayQueueKept) {
		<-h.parker
		r.pass(h)
	}
	if cap(r.queue) > relayQueueKept {
		t.Errorf("got room for %d readers, want %d at most", cap(r.queue), relayQueueKept)
	}
}

// Each reader gets one token for each wait, however many parties wake readers at the same time.
func TestRelayStress(t *testing.T) {
	const wakers, readers, waits = 3, 20, 200
	var r relay
	var running sync.WaitGroup
	parked := make(chan *half, readers)
	for range readers {
		running.Go(func() {
			h := &half{parker: make(chan struct{}, 1)}
			for range waits {
				parked <- h
				<-h.parker
				r.pass(h)
				if rand.IntN(4) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	var waking sync.WaitGroup
	for range wakers {
		waking.Go(func() {
			for h := range parked {
				r.wake(h)
			}
		})
	}
	testnet.Within(t, "the readers", running.Wait)
	close(parked)
	waking.Wait()
	if r.current.Load() != nil {
		t.Error("a reader that has ended is to wake the next")
	}
}

// While processors are crowded, the readers of a batch are woken in turn, whatever the one before does
// then.
func TestCrowdedBatch(t *testing.T) {
	const n = 8
	l, fds, peers := newCompany(t, n)
	defer holdLoop(t, l)()
	crowd(l)
	reads := make([]<-chan result, n)
	for i, f := range fds {
		reads[i] = startRead(t, f)
		mustWrite(t, peers[i], "x")
	}
	visitUntil(t, l, "all waits have ended", func() bool {
		return !slices.ContainsFunc(fds, func(f *FD) bool { return f.rd.awaited() })
	})
	for _, read := range reads {
		wantRead(t, "Read", read)
	}
}
