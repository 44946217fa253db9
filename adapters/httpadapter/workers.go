package httpadapter

import (
	"sync"
	"time"
)

// workers are the goroutines that serve the requests of the fast path: one per connection that has
// a request under way. A worker without a connection waits for the next in a stack, so that the last
// one to become free, whose stack and memory are still in the processor's cache, goes on first, and
// those at the bottom end when they are not needed any more.
//
//	worker    where                leaves by
//	serving   with its connection  the connection waits again, or is given up: idle
//	idle      in the stack         serve: serving; trim, close: it ends
type workers struct {
	mu     sync.Mutex
	idle   []*worker   // last in, first out
	unused int         // the fewest that were idle since the last trim
	timer  *time.Timer // trims; set while workers are idle
	set    bool
	closed bool
}

// worker is an idle worker's place in the stack.
type worker struct{ next chan *conn } // nil ends it

// workerIdleTime is how often idle workers are looked at: those end that were not needed since the
// last time.
const workerIdleTime = time.Second

// serve has a worker serve c. It doesn't block.
func (ws *workers) serve(c *conn) {
	ws.mu.Lock()
	n := len(ws.idle) - 1
	if n < 0 {
		ws.mu.Unlock()
		go ws.work(c)
		return
	}
	w := ws.idle[n]
	ws.idle[n] = nil
	ws.idle = ws.idle[:n]
	ws.unused = min(ws.unused, n)
	ws.mu.Unlock()
	w.next <- c // which has room, since the worker is idle
}

// work is a worker's goroutine. It begins with c. A handler that ends its goroutine
// (runtime.Goexit) ends the worker.
func (ws *workers) work(c *conn) {
	w := &worker{next: make(chan *conn, 1)}
	for c != nil {
		c.serve()
		if !ws.rest(w) {
			return
		}
		c = <-w.next
	}
}

// rest puts w into the stack. It reports false if no worker is needed any more.
func (ws *workers) rest(w *worker) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return false
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
	return true
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
		w.next <- nil
	}
	left := copy(ws.idle, ws.idle[n:])
	clear(ws.idle[left:])
	ws.idle = ws.idle[:left]
	if left == 0 {
		ws.idle = nil // the array of a flood is not kept
	}
	ws.unused = min(ws.unused, left)
}
