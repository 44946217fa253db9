package loop

import (
	"sync"
	"sync/atomic"
)

// A relay wakes the readers of a loop one after the other, each by the one before as soon as that runs,
// while processors are crowded with goroutines that compute (see [line.Line]).
//
// The scheduler runs the goroutine next that was readied last. Those readied before it go to the end of
// the processor's queue, behind a goroutine that computes: the processor has fetched that together with
// the goroutine that polls. So if a whole batch of readers is readied at once, all but one wait for a
// time slice, 10 or 20 ms. In a relay each is the one that was readied last.
//
//	current  meaning                                leaves by
//	nil      no reader is in the queue              wake: the reader that is woken
//	a half   its reader has been woken, and will    pass, by that reader: the next one from the queue, or
//	         wake the next                          nil
//
// A reader whose wait has ended always takes its token, and passes then: none is left in the queue.
type relay struct {
	current atomic.Pointer[half] // written with mu held

	mu    sync.Mutex
	queue []*half // [next:] have ended their waits, and have no tokens yet
	next  int
}

// relayQueueKept is the largest queue that is reused, in readers: 8 KiB.
const relayQueueKept = 1024

// wake sends the token for a wait that the caller has ended, once it is the reader's turn.
func (r *relay) wake(h *half) {
	r.mu.Lock()
	first := r.current.Load() == nil
	if first {
		r.current.Store(h)
	} else {
		r.queue = append(r.queue, h)
	}
	r.mu.Unlock()
	if first {
		h.wakeParked()
	}
}

// pass wakes the next reader, if the relay has woken the caller, which has taken the token of h.
func (r *relay) pass(h *half) {
	if r.current.Load() != h {
		return
	}
	r.mu.Lock()
	next := r.takeNext()
	r.current.Store(next)
	r.mu.Unlock()
	if next != nil {
		next.wakeParked()
	}
}

// takeNext takes the first reader out of the queue, or returns nil. The caller holds mu.
func (r *relay) takeNext() *half {
	if r.next < len(r.queue) {
		h := r.queue[r.next]
		r.queue[r.next] = nil
		r.next++
		return h
	}
	r.queue, r.next = r.queue[:0], 0
	if cap(r.queue) > relayQueueKept {
		r.queue = nil
	}
	return nil
}
