package reactor

import (
	"net"
	"sync"

	"github.com/percore/percore/internal/goroutine"
)

// workers are the goroutines that run the functions of Go: those of one connection in order, one
// at a time, those of different connections side by side. A worker takes one function of the
// connection that has waited longest, and ends when there is none.
type workers struct {
	// immutable
	max      int // goroutines; 0 means any number
	queueMax int // functions that wait before reading pauses; 0 means any number

	mu struct {
		sync.Mutex
		ready   []*Conn // with functions that wait, and none that runs
		running int     // goroutines
		waiting int     // functions
		paused  []*Conn // that aren't read until there is room
	}
}

// tasks are a connection's functions.
//
//	scheduled  queue      meaning                          leaves by
//	no         empty      nothing to do                    Go: scheduled
//	yes        non-empty  in workers.ready                 a worker takes one: running
//	yes        any        running                          the worker: ready again, or nothing to do
//
// Guarded by the workers' mu.
type tasks struct {
	queue     []func()
	scheduled bool
}

// Go has f run on a goroutine of the server's, where it may block. The functions of a connection run
// in the order of the calls, one at a time. Go does not wait: while more functions wait than the
// option Workers allows, the connection isn't read. The handler's Close is called when all have run;
// after it, and after a Detach, Go fails with [net.ErrClosed]. A function that panics ends the
// connection.
func (c *Conn) Go(f func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return c.sock.opError("go", net.ErrClosed)
	}
	t := &c.extrasLocked().tasks
	ws := &c.loop.server.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	t.queue = append(t.queue, f)
	ws.mu.waiting++
	c.loop.figures.waiting.Add(1)
	if !t.scheduled {
		t.scheduled = true
		ws.readyLocked(c)
	}
	if ws.queueMax > 0 && ws.mu.waiting > ws.queueMax && c.asked.Or(askWork)&askWork == 0 {
		ws.mu.paused = append(ws.mu.paused, c)
	}
	return nil
}

// readyLocked has a worker take c up, which has functions that wait.
func (ws *workers) readyLocked(c *Conn) {
	ws.mu.ready = append(ws.mu.ready, c)
	if ws.max == 0 || ws.mu.running < ws.max {
		ws.mu.running++
		go ws.work()
	}
}

// work is a worker's goroutine. It is replaced if a function ends it (runtime.Goexit), or leaves it
// locked to its thread (runtime.LockOSThread).
func (ws *workers) work() {
	goroutine.Reset() // the loop's labels
	ended := false
	defer func() {
		if !ended {
			go ws.work()
		}
	}()
	for {
		c, f := ws.next()
		if c == nil {
			ended = true
			return
		}
		ws.run(c, f)
		if !goroutine.Reset() {
			return
		}
	}
}

// next takes a function, or ends the worker. Once there is room in the queue again, it has the loops
// go on with the connections that were paused.
func (ws *workers) next() (*Conn, func()) {
	c, f, resumed := ws.take()
	for _, p := range resumed {
		p.asked.And(^askWork)
		p.remind()
	}
	return c, f
}

func (ws *workers) take() (c *Conn, f func(), resumed []*Conn) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.mu.ready) == 0 {
		ws.mu.running--
		ws.mu.ready = nil
		return nil, nil, nil
	}
	c = ws.mu.ready[0]
	ws.mu.ready[0] = nil
	ws.mu.ready = ws.mu.ready[1:]
	t := &c.more.tasks
	f = t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	ws.mu.waiting--
	c.loop.figures.waiting.Add(-1)
	if ws.mu.waiting <= ws.queueMax/2 {
		resumed, ws.mu.paused = ws.mu.paused, nil
	}
	return c, f, resumed
}

// run calls f, and sees to it that the connection's next function has its turn.
func (ws *workers) run(c *Conn, f func()) {
	returned := false
	defer func() {
		if !returned {
			c.panicked("Go", recover())
		}
		if !ws.again(c) && c.asked.Load()&(askClose|askEnd) != 0 {
			c.remind() // it may close now
		}
	}()
	f()
	returned = true
}

// again puts c back, whose function has run, if there are more.
func (ws *workers) again(c *Conn) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	t := &c.more.tasks
	if len(t.queue) > 0 {
		ws.mu.ready = append(ws.mu.ready, c) // this worker goes on
		return true
	}
	t.scheduled, t.queue = false, nil
	return false
}

// remind has the loop look after the connection.
func (c *Conn) remind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.remind(c, false)
}

// hasWork reports whether a function of Go waits or runs.
func (c *Conn) hasWork() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hasWorkLocked()
}

func (c *Conn) hasWorkLocked() bool {
	if c.more == nil {
		return false
	}
	ws := &c.loop.server.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return c.more.tasks.scheduled
}
