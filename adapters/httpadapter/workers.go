package httpadapter

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/percore/percore/internal/invariants"
)

// workers are the goroutines that serve the requests of the fast path, and the queue of the
// connections that have something to read. A worker serves one connection after the other, without
// a switch between them and with its stack in the processor's cache, as long as no handler blocks.
//
// No worker can know whether the next handler blocks. So while connections are queued one more
// worker, the spare, is always awake, and stands in the scheduler's line of runnable goroutines.
// It runs when a processor has nothing else to do, which is so when a handler blocks. Then it has
// another worker serve, and stands in line again, at the end. So there are as many workers as
// handlers that block, as many as processors, and the spare.
//
//	worker   where                       leaves by
//	idle     in the stack                serve, dispatch, which wake it: spare, serving; trim, close: it ends
//	spare    runnable, or in dispatch    two connections or more are queued: it wakes a worker for the
//	                                     first, and stays; one: serving; none: idle
//	serving  with its connection         the connection waits again, or is given up: serving the next one;
//	                                     idle if none is queued, or after turnsMax; a handler ends its
//	                                     goroutine (runtime.Goexit): it ends
//
//	queue    spare  meaning                        leaves by
//	empty    no     no connection waits            serve: a connection, and a spare
//	any      yes    the spare will look at it      dispatch, with one connection or none: empty
//
// Idle workers are a stack: the last one to become free goes on first, and those at the bottom end
// when they are not needed any more.
type workers struct {
	mu     sync.Mutex
	ready  connRing    // first in, first out
	spare  bool        // a worker is the spare
	idle   []*worker   // last in, first out
	unused int         // the fewest that were idle since the last trim
	timer  *time.Timer // trims; set while workers are idle
	set    bool
	closed bool
}

// worker is an idle worker's place in the stack.
type worker struct {
	// wake has the connection that the worker is woken for; nil makes it the spare, and the end of the
	// channel ends the worker. The channel is made when the worker is idle for the first time: of a
	// flood of handlers that wait most workers never are.
	wake chan *conn
}

const (
	// workerIdleTime is how often idle workers are looked at: those end that were not needed since the
	// last time.
	workerIdleTime = time.Second

	// turnsMax is how many turns a worker serves before all other goroutines that are runnable get
	// the processor: with short requests some hundred microseconds. The scheduler takes it
	// from longer ones by itself.
	turnsMax = 32
)

// procsPerWorkers is how many processors one set of workers keeps busy. Each request takes its lock
// twice, for some tens of nanoseconds. The more sets there are, the fewer connections each
// finds queued at once.
const procsPerWorkers = 4

// workerSets returns how many sets of workers a call has whose connections come from that many
// queues.
func workerSets(queues int) int {
	return min(queues, (runtime.GOMAXPROCS(0)+procsPerWorkers-1)/procsPerWorkers)
}

// serve has a worker serve c. It doesn't block.
func (ws *workers) serve(c *conn) {
	ws.mu.Lock()
	ws.ready.push(c)
	if ws.spare {
		ws.mu.Unlock()
		return
	}
	ws.spare = true
	w := ws.takeIdleLocked()
	ws.mu.Unlock()
	ws.wake(w, nil)
}

// wake has an idle worker serve c, or be the spare if c is nil. If w is nil there is no idle one, and
// another begins.
func (ws *workers) wake(w *worker, c *conn) {
	if w == nil {
		go ws.work(c)
		return
	}
	w.wake <- c // which has room, since the worker is idle
}

// work is a worker's goroutine. It begins with c, or as the spare if c is nil.
func (ws *workers) work(c *conn) {
	w := new(worker)
	for more := true; more; c, more = <-w.wake {
		if c == nil {
			c = ws.dispatch(w)
		}
		for turns := 1; c != nil; turns++ {
			c.serve()
			c = ws.next(w, turns)
		}
	}
}

// dispatch is the spare's work. It returns the last connection of the queue, for w to serve. If the
// queue is empty it returns nil, and w is idle.
func (ws *workers) dispatch(w *worker) *conn {
	for {
		ws.mu.Lock()
		if ws.ready.len == 0 {
			ws.spare = false
			ws.restLocked(w)
			ws.mu.Unlock()
			return nil
		}
		c := ws.ready.pop()
		ws.spare = ws.ready.len > 0
		if !ws.spare {
			ws.mu.Unlock()
			return c
		}
		next := ws.takeIdleLocked()
		ws.mu.Unlock()
		// The worker that is woken runs next on this processor. Had the spare woken a spare in its
		// place, and served, that one would go before goroutines that have been runnable for longer.
		ws.wake(next, c)
		runtime.Gosched()
	}
}

// next returns the connection that w, after that many turns, serves next. It returns nil if w is idle
// now.
func (ws *workers) next(w *worker, turns int) *conn {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.checkLocked()
	if ws.ready.len > 0 && turns < turnsMax {
		return ws.ready.pop()
	}
	ws.restLocked(w)
	return nil
}

// takeIdleLocked takes a worker out of the stack, or returns nil if there is none.
func (ws *workers) takeIdleLocked() *worker {
	n := len(ws.idle) - 1
	if n < 0 {
		return nil
	}
	w := ws.idle[n]
	ws.idle[n] = nil
	ws.idle = ws.idle[:n]
	ws.unused = min(ws.unused, n)
	return w
}

// restLocked puts w into the stack, or ends it if no worker is needed any more.
func (ws *workers) restLocked(w *worker) {
	if w.wake == nil {
		w.wake = make(chan *conn, 1)
	}
	if ws.closed {
		close(w.wake)
		return
	}
	ws.idle = append(ws.idle, w)
	if !ws.set {
		ws.set = true
		if ws.timer == nil {
			ws.timer = time.AfterFunc(workerIdleTime, ws.trim)
		} else {
			ws.timer.Reset(workerIdleTime)
		}
	}
}

// trim ends the workers that were idle all the time since the last trim: those at the bottom.
func (ws *workers) trim() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.endLocked(ws.unused)
	ws.unused = len(ws.idle)
	ws.set = len(ws.idle) > 0
	if ws.set {
		ws.timer.Reset(workerIdleTime)
	}
}

// close ends the idle workers, and the others when they are done.
func (ws *workers) close() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.closed = true
	ws.endLocked(len(ws.idle))
	if ws.timer != nil {
		ws.timer.Stop()
	}
}

// endLocked ends the n workers that have been idle for longest.
func (ws *workers) endLocked(n int) {
	for _, w := range ws.idle[:n] {
		close(w.wake)
	}
	left := copy(ws.idle, ws.idle[n:])
	clear(ws.idle[left:])
	ws.idle = ws.idle[:left]
	if left == 0 {
		ws.idle = nil // the array of a flood is not kept
	}
	ws.unused = min(ws.unused, left)
}

// checkLocked panics if a connection waits that no worker will look at, in a checking build.
func (ws *workers) checkLocked() {
	if invariants.Enabled && ws.ready.len > 0 && !ws.spare {
		panic(fmt.Sprintf("httpadapter: %d connections wait, and there is no spare worker", ws.ready.len))
	}
}

// connRing is a queue of connections.
type connRing struct {
	array []*conn // the length is a power of two
	first int     // index of the first connection
	len   int
}

// The lengths of a ring's array: at the beginning, and the longest that an empty ring keeps.
const (
	ringMin  = 16
	ringKept = 1024
)

func (r *connRing) push(c *conn) {
	if r.len == len(r.array) {
		longer := make([]*conn, max(ringMin, 2*len(r.array)))
		n := copy(longer, r.array[r.first:])
		copy(longer[n:], r.array[:r.first])
		r.array, r.first = longer, 0
	}
	r.array[(r.first+r.len)&(len(r.array)-1)] = c
	r.len++
}

// pop takes the first connection out of a ring that is not empty.
func (r *connRing) pop() *conn {
	c := r.array[r.first]
	r.array[r.first] = nil
	r.first = (r.first + 1) & (len(r.array) - 1)
	r.len--
	if r.len == 0 && len(r.array) > ringKept {
		*r = connRing{} // the array of a flood is not kept
	}
	return c
}
