// Package admission limits how many handlers run at a time, and lets the requests that are too many wait
// for their turn: fairly between their clients' addresses, for a bounded time, and a bounded number.
//
//	state of a waiter  meaning                                      leaves by
//	waiting            it is in its peer's queue                    leave: admitted; shed: refused;
//	                                                                the end of its wait: refused
//	admitted           it has a place, and must call Leave          (final)
//	refused            it has none                                  (final)
package admission

import (
	"net/netip"
	"sync"
	"time"

	"github.com/percore/percore/internal/accepting"
)

// A Limiter has a number of places. All methods are safe for concurrent use.
type Limiter struct {
	// immutable
	places  int
	most    int // waiters
	patient time.Duration

	mu sync.Mutex

	// guarded by mu
	taken   int
	waiting int
	queues  map[netip.Prefix]*queue
	turn    *queue // whose waiter is the next; a ring; nil: none
	stats   Stats
}

// Stats are the metrics of a Limiter.
type Stats struct {
	Running int    // places that are taken
	Waiting int    // requests that wait
	Waited  uint64 // requests that had to wait, and have got a place
	Refused uint64 // requests that have got none: too many waited, or for too long
}

// queue has the waiters of a peer. It exists while there are any.
type queue struct {
	peer       netip.Prefix
	prev, next *queue // of the ring
	waiters    []*waiter
}

// waiter is a request that waits.
type waiter struct {
	decided  chan struct{} // closed when it is no longer waiting
	admitted bool          // immutable once decided is closed
}

// New makes a Limiter of places. most requests may wait, each for patient.
func New(places, most int, patient time.Duration) *Limiter {
	return &Limiter{places: places, most: most, patient: patient, queues: make(map[netip.Prefix]*queue)}
}

// Enter takes a place, if one is free, without waiting and without asking who the peer is.
func (l *Limiter) Enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken == l.places {
		return false
	}
	l.taken++
	return true
}

// Wait takes a place, and waits for it, unless it is refused, or gone is closed. It reports whether it
// has got one. peer is the client.
func (l *Limiter) Wait(peer netip.Addr, gone <-chan struct{}) bool {
	of := accepting.Peer(peer)
	w, entered := l.join(of)
	if w == nil {
		return entered
	}
	timer := time.NewTimer(l.patient)
	defer timer.Stop()
	select {
	case <-w.decided:
	case <-timer.C:
		l.giveUp(of, w, true)
	case <-gone:
		l.giveUp(of, w, false)
	}
	return w.admitted
}

// join takes a place, if one is free, or else adds a waiter. Both results are zero for a request that is
// refused.
func (l *Limiter) join(peer netip.Prefix) (w *waiter, entered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken < l.places {
		l.taken++
		return nil, true
	}
	if l.waiting == l.most && !l.shedLocked(peer) {
		l.stats.Refused++
		return nil, false
	}
	q := l.queues[peer]
	if q == nil {
		q = &queue{peer: peer}
		l.queues[peer] = q
		l.linkLocked(q)
	}
	w = &waiter{decided: make(chan struct{})}
	q.waiters = append(q.waiters, w)
	l.waiting++
	return w, false
}

// shedLocked refuses the youngest waiter of the longest queue, to make room for one of peer's. It
// reports false if none has more waiters than peer would have then.
func (l *Limiter) shedLocked(peer netip.Prefix) bool {
	least := 1
	if own := l.queues[peer]; own != nil {
		least += len(own.waiters)
	}
	var longest *queue
	for _, q := range l.queues {
		if len(q.waiters) > least && (longest == nil || len(q.waiters) > len(longest.waiters)) {
			longest = q
		}
	}
	if longest == nil {
		return false
	}
	l.removeLocked(longest, len(longest.waiters)-1)
	l.stats.Refused++
	return true
}

// removeLocked takes a waiter out of its queue, and returns it with decided closed.
func (l *Limiter) removeLocked(q *queue, i int) *waiter {
	w := q.waiters[i]
	n := copy(q.waiters[i:], q.waiters[i+1:])
	q.waiters[i+n] = nil
	q.waiters = q.waiters[:i+n]
	l.waiting--
	if len(q.waiters) == 0 {
		delete(l.queues, q.peer)
		l.unlinkLocked(q)
	}
	close(w.decided)
	return w
}

// giveUp removes a waiter, unless it was decided. refused says that it counts as that.
func (l *Limiter) giveUp(peer netip.Prefix, w *waiter, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[peer]
	if q == nil {
		return
	}
	for i, other := range q.waiters {
		if other == w {
			l.removeLocked(q, i)
			if refused {
				l.stats.Refused++
			}
			return
		}
	}
}

// linkLocked puts a queue last in the ring.
func (l *Limiter) linkLocked(q *queue) {
	if l.turn == nil {
		q.prev, q.next = q, q
		l.turn = q
		return
	}
	q.prev, q.next = l.turn.prev, l.turn
	q.prev.next, q.next.prev = q, q
}

// unlinkLocked takes a queue out of the ring.
func (l *Limiter) unlinkLocked(q *queue) {
	q.prev.next, q.next.prev = q.next, q.prev
	if l.turn == q {
		l.turn = q.next
		if q.next == q {
			l.turn = nil
		}
	}
}

// Leave gives a place back: to the oldest waiter of the peer whose turn it is, if any.
func (l *Limiter) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.turn
	if q == nil {
		l.taken--
		return
	}
	l.turn = q.next // before q may leave the ring
	q.waiters[0].admitted = true
	l.removeLocked(q, 0)
	l.stats.Waited++
}

// Stats returns the metrics.
func (l *Limiter) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Running, s.Waiting = l.taken, l.waiting
	return s
}
