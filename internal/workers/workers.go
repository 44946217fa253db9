// Package workers provides reusable goroutines that serve connections as long as they have something
// to do.
package workers

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/goroutine"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/line"
)

// Pool is a set of goroutines, the workers, that serve connections, and a queue of the connections
// that have something to do. As long as no handler blocks, a worker serves one connection after the
// other. It does so without a goroutine switch, and its stack stays in the CPU cache.
//
// No worker can know whether the next handler blocks. So while connections are queued, one more
// worker, the spare, is always awake, and waits in the scheduler's run queue. It runs when a
// processor has nothing else to do, for example when a handler blocks. Then it wakes another worker
// to serve, and goes back to the end of the run queue. So there is one worker for each blocked
// handler, one for each processor, and the spare.
//
//	worker   where                       leaves by
//	idle     in the stack                Serve, dispatch, which wake it: spare, serving; trim, Close: it ends
//	direct   blocked in WaitDirectly     an event: spare, or idle if there is one; none: idle
//	spare    runnable, or in dispatch    two connections or more are queued: it wakes a worker for the
//	                                     first, and stays; one, or the last that Max allows: serving;
//	                                     none, or Max serve: idle
//	serving  with its connection         the connection waits again, or is given up: serving the next one;
//	                                     after TurnsMax idle, or the spare if there is none; if none is
//	                                     queued, spare, to look for some, or direct, or idle if there is
//	                                     a spare; a handler ends its goroutine (runtime.Goexit), or
//	                                     leaves it locked to its thread (runtime.LockOSThread): it ends
//
//	queue      spare  meaning                       leaves by
//	empty      no     no connection waits           Serve: a connection, and a spare; next, to look: a spare
//	any        yes    the spare will look at it     dispatch, with one connection or none: empty; with the
//	                                                last that Max allows: non-empty, no spare
//	non-empty  no     Max workers serve, and will   next: empty; after TurnsMax, or if a worker ends: a spare
//	                  look at it
//
// Idle workers are a stack: those at the bottom end when they are no longer needed.
//
// A T is a connection; its zero value means no connection. The exported fields must be set before the
// first Serve. All methods are safe for concurrent use.
type Pool[T comparable] struct {
	// Work serves a connection. It may block, and may end its goroutine (runtime.Goexit). The state of
	// its goroutine does not reach the next connection: see [goroutine.Reset].
	Work func(T)

	// Max is how many calls of Work run at a time; 0 means any number.
	Max int

	// A worker that finds the queue empty calls Look before it goes idle, with the connection that
	// it served last. Look may find other connections that have something to read, and call Serve
	// for them. If linger is set, Look may keep its processor for a moment and wait for a client
	// that answers at once. If Look is nil, there is nowhere to look.
	Look func(last T, linger bool)

	// Socket returns the socket of the connection that a worker served last, if the worker should wait
	// for it directly when it finds the queue empty, and otherwise nil. If Socket is nil, workers never
	// wait directly.
	Socket func(last T) Socket

	served atomic.Uint64 // turns that have begun; written with mu held

	mu      sync.Mutex
	ready   ring[T]      // first in, first out
	serving int          // workers that serve, or are woken to
	spare   bool         // a worker is the spare
	line    line.Line    // the spare's place, while it looks
	idle    []*worker[T] // last in, first out
	unused  int          // the fewest that were idle since the last trim
	timed   bool         // a timer will call trim, as workers are idle
	closed  bool
}

// Socket is the socket of a connection. A worker that waits for it directly calls the methods in order,
// the last two if BeginDirect reports true. Serve may be called by EndDirect only.
type Socket interface {
	BeginDirect() bool
	WaitDirectly() (found bool)
	EndDirect()
}

// worker holds what a worker needs besides its goroutine.
type worker[T comparable] struct {
	turns int // how many it has served since it last yielded; used only by the worker

	// wake carries the connection that the worker is woken for. The zero T makes it the spare, and
	// closing the channel ends the worker. The channel is made when the worker first goes idle: in
	// a flood of handlers that wait, most workers never do.
	wake chan T
}

const (
	// idleTime is how often idle workers are checked: workers that were not needed since the last
	// check end.
	idleTime = time.Second

	// TurnsMax is how many turns a worker serves before all other goroutines that are runnable get
	// the processor: with short requests, a few hundred microseconds. The scheduler preempts longer
	// ones by itself.
	TurnsMax = 32
)

// Serve makes a worker call Work with c. It doesn't block.
func (p *Pool[T]) Serve(c T) {
	p.mu.Lock()
	p.ready.push(c)
	p.unlockWithSpare()
}

// unlockWithSpare unlocks mu, and wakes a worker to be the spare if one is needed and there is none.
func (p *Pool[T]) unlockWithSpare() {
	if !p.needsSpareLocked() {
		p.mu.Unlock()
		return
	}
	p.spare = true
	w := p.takeIdleLocked()
	p.mu.Unlock()
	var none T
	p.wake(w, none)
}

// needsSpareLocked reports whether connections are queued that no worker will look at.
func (p *Pool[T]) needsSpareLocked() bool { return p.ready.len > 0 && !p.spare && !p.isFullLocked() }

// isFullLocked reports whether as many workers are serving as Max allows.
func (p *Pool[T]) isFullLocked() bool { return p.Max > 0 && p.serving >= p.Max }

// wake makes the idle worker w serve c, or become the spare if c is the zero T. If w is nil, no
// worker is idle, and wake starts another.
func (p *Pool[T]) wake(w *worker[T], c T) {
	if w == nil {
		go p.work(c)
		return
	}
	w.wake <- c // which has room, since the worker is idle
}

// work is a worker's goroutine. It begins with c, or as the spare if c is the zero T.
func (p *Pool[T]) work(c T) {
	goroutine.Reset() // clears the labels inherited from the goroutine that started it
	w := new(worker[T])
	defer func() {
		var none T     // of its own: one that both use would be below each handler that waits
		if c != none { // Work has ended the goroutine, or locked it to its thread
			p.mu.Lock()
			p.serving--
			p.unlockWithSpare()
		}
	}()
	var none T
	for more := true; more; c, more = <-w.wake {
		if c == none {
			c = p.dispatch(w)
		}
		for w.turns = 1; c != none; w.turns++ {
			p.Work(c)
			if !goroutine.Reset() {
				return
			}
			c = p.next(w, c)
		}
	}
}

// dispatch does the work of the spare. It returns the last connection in the queue, or the last that Max
// allows, for w to serve. If there is none, it returns the zero T, and w is idle.
func (p *Pool[T]) dispatch(w *worker[T]) T {
	for {
		p.mu.Lock()
		if p.ready.len == 0 || p.isFullLocked() {
			p.spare = false
			p.restLocked(w)
			p.mu.Unlock()
			var none T
			return none
		}
		c := p.ready.pop()
		p.served.Add(1)
		p.serving++
		p.spare = p.ready.len > 0 && !p.isFullLocked()
		if !p.spare {
			p.mu.Unlock()
			return c
		}
		next := p.takeIdleLocked()
		p.mu.Unlock()
		// The worker that is woken runs next on this processor. If the spare woke another spare
		// instead and served the connection itself, the new spare would run before goroutines that
		// have been runnable for longer.
		p.wake(next, c)
		p.line.Stand(p.served.Load)
	}
}

// next returns the connection that w serves after last, or the zero T if w is idle now.
func (p *Pool[T]) next(w *worker[T], last T) (c T) {
	p.mu.Lock()
	p.checkLocked()
	if p.ready.len == 0 && p.Look != nil {
		if !p.spare {
			p.spare = true
			p.serving--
			p.mu.Unlock()
			return p.lookAsSpare(w, last)
		}
		if w.turns < p.turnsMax() {
			p.mu.Unlock()
			p.look(last)
			p.mu.Lock()
		}
	}
	if p.ready.len > 0 && w.turns < p.turnsMax() {
		defer p.mu.Unlock()
		p.served.Add(1)
		return p.ready.pop()
	}
	p.serving--
	if !p.needsSpareLocked() {
		defer p.mu.Unlock()
		if p.serving == 0 {
			p.line.RanOut(p.served.Load)
		}
		p.restLocked(w)
		return c
	}
	p.spare = true
	p.mu.Unlock()
	runtime.Gosched()
	w.turns = 0
	return p.dispatch(w)
}

// lookAsSpare looks for connections when w has found the queue empty. While it looks, w is the
// spare, and it serves what it finds itself: a single connection wakes no other worker.
func (p *Pool[T]) lookAsSpare(w *worker[T], last T) T {
	s := p.socket(last)
	if w.turns >= p.turnsMax() {
		if s != nil {
			p.line.Stand(p.served.Load) // a worker that waits directly looks in no other way for a crowd
		} else {
			runtime.Gosched()
		}
		w.turns = 0
	}
	if s != nil && !p.Crowded() && s.BeginDirect() {
		return p.waitDirectly(w, s)
	}
	for p.look(last); p.isEmpty() && p.line.Yield(p.served.Load); p.look(last) {
	}
	return p.dispatch(w)
}

func (p *Pool[T]) socket(last T) Socket {
	if p.Socket == nil {
		return nil
	}
	return p.Socket(last)
}

// waitDirectly makes w, which is the spare, wait for an event of s. It is not the spare in the
// meantime, and again with an event, unless another worker is by then. It returns what w serves next,
// as next does.
func (p *Pool[T]) waitDirectly(w *worker[T], s Socket) (c T) {
	p.mu.Lock()
	spare := p.ready.len > 0
	if !spare {
		p.spare = false
		p.mu.Unlock()
		found := s.WaitDirectly()
		p.mu.Lock()
		spare = found && !p.spare
		p.spare = p.spare || found
	}
	p.mu.Unlock()
	s.EndDirect()
	if spare {
		return p.dispatch(w)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restLocked(w)
	return c
}

// Yield lets goroutines run that are ready, before the worker that calls it goes on. While processors
// are crowded, goroutines that compute would run as well: then it does nothing.
func (p *Pool[T]) Yield() {
	if !p.Crowded() {
		runtime.Gosched()
	}
}

// Crowded reports whether processors were found crowded, so that workers don't yield for now.
func (p *Pool[T]) Crowded() bool { return p.line.Crowded() }

// look looks for connections. While processors are crowded, it waits a moment for one.
func (p *Pool[T]) look(last T) {
	if p.Look(last, false); p.Crowded() && p.isEmpty() {
		p.Look(last, true)
	}
}

// turnsMax returns how many turns a worker serves at present: see TurnsMax. While processors are
// crowded, the end of the run queue is behind goroutines that compute for 10 ms each. So the worker
// doesn't yield then: only the scheduler preempts it, also after 10 ms.
func (p *Pool[T]) turnsMax() int {
	if p.Crowded() {
		return math.MaxInt
	}
	return TurnsMax
}

func (p *Pool[T]) isEmpty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ready.len == 0
}

// takeIdleLocked takes a worker out of the stack, or returns nil.
func (p *Pool[T]) takeIdleLocked() *worker[T] {
	n := len(p.idle) - 1
	if n < 0 {
		return nil
	}
	w := p.idle[n]
	p.idle[n] = nil
	p.idle = p.idle[:n]
	p.unused = min(p.unused, n)
	return w
}

// restLocked puts w into the stack, or ends it if no worker is needed any more.
func (p *Pool[T]) restLocked(w *worker[T]) {
	if w.wake == nil {
		w.wake = make(chan T, 1)
	}
	if p.closed {
		close(w.wake)
		return
	}
	p.idle = append(p.idle, w)
	if !p.timed {
		p.timed = true
		time.AfterFunc(idleTime, p.trim)
	}
}

// trim ends the workers at the bottom of the stack, which have been idle ever since the last trim.
func (p *Pool[T]) trim() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endLocked(p.unused)
	p.unused = len(p.idle)
	if p.timed = len(p.idle) > 0; p.timed {
		time.AfterFunc(idleTime, p.trim)
	}
}

// Close ends the idle workers, and the others when they are done. Until Open is called each call of
// Serve starts a worker then.
func (p *Pool[T]) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.endLocked(len(p.idle))
}

// Open undoes Close.
func (p *Pool[T]) Open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = false
}

// endLocked ends the n workers that have been idle the longest.
func (p *Pool[T]) endLocked(n int) {
	for _, w := range p.idle[:n] {
		close(w.wake)
	}
	left := copy(p.idle, p.idle[n:])
	clear(p.idle[left:])
	p.idle = p.idle[:left]
	if left == 0 {
		p.idle = nil // do not keep the array of a flood
	}
	p.unused = min(p.unused, left)
}

// checkLocked, in a checking build, panics if a connection is queued that no worker will look at.
func (p *Pool[T]) checkLocked() {
	if invariants.Enabled && p.needsSpareLocked() {
		panic(fmt.Sprintf("workers: %d connections wait, and there is no spare worker", p.ready.len))
	}
}

// ring is a queue of connections.
type ring[T any] struct {
	array []T // the length is a power of two
	first int // index of the first connection
	len   int
}

// The lengths of a ring's array: at the beginning, and the longest that an empty ring keeps.
const (
	ringMin  = 16
	ringKept = 1024
)

func (r *ring[T]) push(c T) {
	if r.len == len(r.array) {
		longer := make([]T, max(ringMin, 2*len(r.array)))
		n := copy(longer, r.array[r.first:])
		copy(longer[n:], r.array[:r.first])
		r.array, r.first = longer, 0
	}
	r.array[(r.first+r.len)&(len(r.array)-1)] = c
	r.len++
}

// pop takes the first connection out of a ring that is not empty.
func (r *ring[T]) pop() T {
	c := r.array[r.first]
	clear(r.array[r.first : r.first+1])
	r.first = (r.first + 1) & (len(r.array) - 1)
	r.len--
	if r.len == 0 && len(r.array) > ringKept {
		*r = ring[T]{} // do not keep the array of a flood
	}
	return c
}
