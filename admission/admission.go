// Package admission limits how much work a process takes on. A [Limiter] has a number of places for
// handlers. When they are taken, a bounded number of requests waits for a bounded time, with turns
// shared fairly between clients. All others are refused at once.
//
// Without it, a server that gets more than it can serve lets all requests wait, until all of them
// are late. httpadapter.LimitWork and grpcadapter.LimitWork take a Limiter. Servers with the same
// Limiter share its places:
//
//	limiter := admission.New(admission.Limits{Handlers: 64})
//	web := httpadapter.Wrap(srv, httpadapter.LimitWork(limiter, nil))
//	calls := grpcadapter.NewServer(grpcadapter.LimitWork(limiter, nil))
//
// Requests that wait:
//
//	state     meaning                                      leaves by
//	waiting   it is in its client's queue                  Leave: admitted; shed: refused;
//	                                                       the end of its wait: refused
//	admitted  it has a place, and must call Leave          (final)
//	refused   it has none                                  (final)
package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/shared/counters"
)

// Limits are the limits of a [Limiter].
type Limits struct {
	// Handlers is how many handlers may run at a time. It must be positive.
	Handlers int

	// Wait is how long a request may wait for a place; 0 means a second. Choose less than what clients
	// accept minus the time that a handler takes: under overload, every request that gets a place has
	// waited for nearly this long.
	Wait time.Duration

	// Queue is how many requests may wait; 0 means 1,000. Each holds a goroutine, some 6 KB.
	Queue int
}

const (
	defaultWait  = time.Second
	defaultQueue = 1000
)

// A Limiter has a number of places. All methods are safe for concurrent use.
//
// When all places are taken, requests wait. Clients take turns, each with its oldest request first,
// so a flood from one client delays a single request from another by at most one turn. A client is
// an IPv4 address, or an IPv6 network of 64 bits. When too many requests wait, the client with the
// most of them loses its youngest, which is refused.
type Limiter struct {
	// immutable
	limits   Limits
	counters *counters.Set[counter]
	counts   counters.Cell[counter] // written with mu held; countRunning and countWaiting decide

	mu sync.Mutex

	// guarded by mu
	queues  map[netip.Prefix]*queue
	turns   []*queue // the same, in the order of their turns
	lengths []int    // how many of them have so many waiters
	longest int      // the waiters of the longest
}

// queue has the waiters of a peer. It exists while there are any.
type queue struct {
	peer    netip.Prefix
	waiters []*waiter
}

// waiter is a request that waits.
type waiter struct {
	decided  chan struct{} // closed when it is no longer waiting
	admitted bool          // immutable once decided is closed
}

// New makes a Limiter. It panics if a number is negative, or Handlers is 0.
func New(limits Limits) *Limiter {
	if limits.Handlers <= 0 || limits.Queue < 0 || limits.Wait < 0 {
		panic(fmt.Sprintf("admission: New was called with a number that is negative, or without Limits.Handlers: %+v", limits))
	}
	if limits.Wait == 0 {
		limits.Wait = defaultWait
	}
	if limits.Queue == 0 {
		limits.Queue = defaultQueue
	}
	l := &Limiter{
		limits:   limits,
		counters: counters.NewSet(1, counterCount),
		queues:   make(map[netip.Prefix]*queue),
	}
	l.counts = l.counters.Cells[0]
	counters.Enlist(limiters, l, l.counters)
	return l
}

// running returns how many places are taken.
func (l *Limiter) running() int { return int(l.counts.Load(countRunning)) }

// waiting returns how many requests wait.
func (l *Limiter) waiting() int { return int(l.counts.Load(countWaiting)) }

// Limits returns the limits, with the defaults that were taken.
func (l *Limiter) Limits() Limits { return l.limits }

// TryEnter takes a place if one is free, and reports whether it did. It doesn't block. If it returns
// true, Leave must be called when the handler has returned.
func (l *Limiter) TryEnter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tryEnterLocked()
}

func (l *Limiter) tryEnterLocked() bool {
	if l.running() == l.limits.Handlers {
		return false
	}
	l.counts.Add(countRunning, 1)
	return true
}

// Enter takes a place, and blocks until there is one. It returns false, without a place, if the
// request is refused or gone is closed; gone may be nil. peer is the client; all peers without an
// address are one client. If Enter returns true, Leave must be called when the handler has returned.
func (l *Limiter) Enter(peer netip.Addr, gone <-chan struct{}) bool {
	of := accepting.Peer(peer)
	w, entered := l.join(of)
	if w == nil {
		return entered
	}
	timer := time.NewTimer(l.limits.Wait)
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
	if l.tryEnterLocked() {
		return nil, true
	}
	if l.waiting() == l.limits.Queue && !l.shedLocked(peer) {
		l.counts.Add(countRefused, 1)
		return nil, false
	}
	q := l.queues[peer]
	if q == nil {
		q = &queue{peer: peer}
		l.queues[peer] = q
		l.turns = append(l.turns, q)
	}
	w = &waiter{decided: make(chan struct{})}
	l.setLocked(q, append(q.waiters, w))
	l.counts.Add(countWaiting, 1)
	return w, false
}

// shedLocked refuses the youngest waiter of the longest queue, to make room for a request of peer.
// It reports false if no queue is longer than peer's would be then.
func (l *Limiter) shedLocked(peer netip.Prefix) bool {
	least := 1
	if own := l.queues[peer]; own != nil {
		least += len(own.waiters)
	}
	if l.longest <= least {
		return false // without a look at the queues: there may be a thousand
	}
	i := slices.IndexFunc(l.turns, func(q *queue) bool { return len(q.waiters) == l.longest })
	l.removeLocked(l.turns[i], l.longest-1)
	l.counts.Add(countRefused, 1)
	return true
}

// removeLocked takes a waiter out of its queue, and closes its decided.
func (l *Limiter) removeLocked(q *queue, i int) {
	w := q.waiters[i]
	l.setLocked(q, slices.Delete(q.waiters, i, i+1))
	l.counts.Add(countWaiting, -1)
	if len(q.waiters) == 0 {
		delete(l.queues, q.peer)
		i := slices.Index(l.turns, q)
		l.turns = slices.Delete(l.turns, i, i+1)
	}
	close(w.decided)
}

// setLocked sets the waiters of a queue: one more than before, or one less.
func (l *Limiter) setLocked(q *queue, waiters []*waiter) {
	n := len(waiters)
	for len(l.lengths) <= n {
		l.lengths = append(l.lengths, 0)
	}
	l.lengths[len(q.waiters)]--
	l.lengths[n]++
	q.waiters, l.longest = waiters, max(l.longest, n)
	if l.lengths[l.longest] == 0 {
		l.longest--
	}
}

// giveUp removes a waiter, unless it was decided. refused says that it counts as refused.
func (l *Limiter) giveUp(peer netip.Prefix, w *waiter, refused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[peer]
	if q == nil {
		return
	}
	if i := slices.Index(q.waiters, w); i >= 0 {
		l.removeLocked(q, i)
		if refused {
			l.counts.Add(countRefused, 1)
		}
	}
}

// Leave gives a place back. The oldest waiter of the client whose turn it is gets it, if there is
// one. Leave doesn't block. It panics if no place is taken.
func (l *Limiter) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.running() == 0:
		panic("admission: Leave was called more often than a place was taken")
	case len(l.turns) == 0:
		l.counts.Add(countRunning, -1)
	default:
		q := l.turns[0]
		if len(q.waiters) > 1 {
			l.turns = append(l.turns[1:], q)
		}
		q.waiters[0].admitted = true
		l.removeLocked(q, 0)
		l.counts.Add(countWaited, 1)
	}
}
