package reactor

import (
	"net"
	"sync"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// functions are the calls of Go that wait or run. The functions of one connection run in order, one at
// a time, those of different connections concurrently. A worker of the pool runs one function of the
// connection that has waited longest.
type functions struct {
	// immutable
	waitingMax int // before reading pauses; 0 means any number
	pool       workers.Pool[*Conn]

	mu struct {
		sync.Mutex
		waiting int
		paused  []*Conn // not read until there is room
	}
}

// tasks are a connection's functions.
//
//	scheduled  queue      meaning              leaves by
//	no         empty      nothing to do        Go: scheduled
//	yes        non-empty  in the pool's queue  a worker takes one: running
//	yes        any        running              it ends: in the pool's queue again, or nothing to do
//
// Guarded by the mu of functions.
type tasks struct {
	queue     []func()
	scheduled bool
}

// Go runs f on a goroutine of the server, where it may block. The functions of a connection run
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
	fs := &c.loop.server.functions
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t.queue = append(t.queue, f)
	fs.mu.waiting++
	c.loop.figures.waiting.Add(1)
	if !t.scheduled {
		t.scheduled = true
		fs.serve(c)
	}
	if fs.waitingMax > 0 && fs.mu.waiting > fs.waitingMax && c.asked.Or(askWork)&askWork == 0 {
		fs.mu.paused = append(fs.mu.paused, c)
	}
	return nil
}

// serve gives c, which has functions that wait, to a worker. In a bubble of testing/synctest that is a
// goroutine of the bubble: the pool's goroutines must not be made there.
func (fs *functions) serve(c *Conn) {
	if monotime.InBubble() {
		go fs.run(c)
		return
	}
	fs.pool.Serve(c)
}

// run runs the first of c's functions. If others wait, c goes to the end of the queue.
func (fs *functions) run(c *Conn) {
	f := fs.take(c)
	returned := false
	defer func() {
		if !returned {
			c.panicked("Go", recover())
		}
		if !fs.again(c) && c.asked.Load()&(askClose|askEnd) != 0 {
			c.remind() // it may close now
		}
	}()
	f()
	returned = true
}

// take takes the first of c's functions. Once there is room in the queue again, the loops go on with
// the connections that were paused.
func (fs *functions) take(c *Conn) (f func()) {
	var resumed []*Conn
	defer func() {
		for _, p := range resumed {
			p.asked.And(^askWork)
			p.remind()
		}
	}()
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &c.more.tasks
	f = t.queue[0]
	t.queue[0] = nil
	t.queue = t.queue[1:]
	fs.mu.waiting--
	c.loop.figures.waiting.Add(-1)
	if fs.mu.waiting <= fs.waitingMax/2 {
		resumed, fs.mu.paused = fs.mu.paused, nil
	}
	return f
}

// again puts c, whose function has run, back into the queue if it has more.
func (fs *functions) again(c *Conn) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &c.more.tasks
	if len(t.queue) > 0 {
		fs.serve(c)
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

func (c *Conn) hasWorkLocked() bool {
	if c.more == nil {
		return false
	}
	fs := &c.loop.server.functions
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return c.more.tasks.scheduled
}
