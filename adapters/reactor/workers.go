package reactor

import (
	"net"
	"sync"
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
	over      bool // Close was called; no function runs any more
}

// Go has f run on a goroutine of the server's, where it may block. The functions of a connection run
// in the order of the calls, one at a time. Go does not wait: while more functions wait than the
// option Workers allows, the connection isn't read. The handler's Close is called when all have run;
// after it Go fails with [net.ErrClosed]. A function that panics ends the connection.
func (c *Conn) Go(f func()) error {
	ws := &c.loop.server.workers
	c.mu.Lock()
	t := &c.extrasLocked().tasks
	c.mu.Unlock()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if t.over {
		return c.opError("go", net.ErrClosed)
	}
	t.queue = append(t.queue, f)
	ws.mu.waiting++
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

// work is a worker's goroutine. A function that ends it (runtime.Goexit) is replaced.
func (ws *workers) work() {
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
	}
}

// next takes a function, or ends the worker.
func (ws *workers) next() (*Conn, func()) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.mu.ready) == 0 {
		ws.mu.running--
		ws.mu.ready = nil
		return nil, nil
	}
	c := ws.mu.ready[0]
	ws.mu.ready[0] = nil
	ws.mu.ready = ws.mu.ready[1:]
	t := &c.more.tasks
	f := t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	ws.mu.waiting--
	if ws.mu.waiting <= ws.queueMax/2 {
		for _, p := range ws.mu.paused {
			p.asked.And(^askWork)
			p.remind()
		}
		ws.mu.paused = nil
	}
	return c, f
}

// run calls f, and sees to it that the connection's next function has its turn.
func (ws *workers) run(c *Conn, f func()) {
	returned := false
	defer func() {
		if !returned {
			c.panicked("Go", recover())
		}
		ws.mu.Lock()
		defer ws.mu.Unlock()
		t := &c.more.tasks
		if len(t.queue) > 0 {
			ws.mu.ready = append(ws.mu.ready, c) // this worker goes on
			return
		}
		t.scheduled, t.queue = false, nil
		if c.asked.Load()&(askClose|askEnd) != 0 {
			c.remind()
		}
	}()
	f()
	returned = true
}

// remind has the loop look after the connection.
func (c *Conn) remind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.remind(c, false)
}

// workDone reports whether no function of Go waits or runs, and then has Go fail from now on.
func (c *Conn) workDone() bool {
	c.mu.Lock()
	more := c.more
	if more == nil {
		more = c.extrasLocked()
	}
	c.mu.Unlock()
	ws := &c.loop.server.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	more.tasks.over = !more.tasks.scheduled
	return more.tasks.over
}

// workDoneLocked reports whether no function of Go waits or runs.
func (c *Conn) workDoneLocked() bool {
	if c.more == nil {
		return true
	}
	ws := &c.loop.server.workers
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !c.more.tasks.scheduled
}
