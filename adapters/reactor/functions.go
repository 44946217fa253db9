package reactor

import (
	"context"
	"net"
	"sync"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/workers"
)

// functions are the calls of Go that wait or run. The functions of one connection run in order, one at
// a time, those of different connections concurrently. A worker of the pool runs one function of the
// connection that has waited longest. The bound is a connection's: a peer that sends many requests is
// held up, and no other.
type functions struct {
	// immutable
	waitingMax int // of a connection, before its reading pauses
	pool       workers.Pool[*Conn]

	mu sync.Mutex // guards the tasks of all connections
}

// tasks are a connection's functions.
//
//	inPool  running  queue      meaning              leaves by
//	no      no       empty      nothing to do        Go: inPool
//	yes     no       non-empty  a worker will come   a worker takes the first: running
//	yes     no       empty      all were dropped     a worker comes: nothing to do; Go: as above
//	no      yes      any        the first runs       it ends: inPool if there are more, or nothing to do
//
// Guarded by the mu of functions.
type tasks struct {
	queue   []task
	inPool  bool
	running bool
}

// task is a function of Go, or of GoContext.
type task struct {
	f      func()
	withIt func(ctx context.Context) // if f is nil
	ctx    context.Context
}

func (t task) run() {
	if t.f != nil {
		t.f()
		return
	}
	t.withIt(t.ctx)
}

// Go runs f on a goroutine of the server, where it may block. The functions of a connection run
// in the order of the calls, one at a time. Go does not wait: while more than Config.WaitingMax
// functions of the connection wait, it isn't read. The handler's Close is called when all have run,
// also those of a connection that is lost; only [Server.Close] drops those that have not begun. Go fails
// with [net.ErrClosed] after Server.Close, after the handler's Close, and after a Detach. A function
// that panics ends the connection.
func (c *Conn) Go(f func()) error {
	if f == nil {
		return errNil("Go", "function")
	}
	return c.schedule(task{f: f})
}

// GoContext is Go for work that is of no use without the connection. f is dropped if it hasn't begun
// when the connection ends, whichever side or error ends it, except [Server.Shutdown]. The context that
// f gets ends then, too, with the error of the handler's Close as its cause. A peer that ends its stream
// ends the connection unless the handler is an [EndHandler], as net/http sees it: then nothing tells
// whether it still reads. GoContext fails as Go does, and when the connection has ended.
func (c *Conn) GoContext(f func(ctx context.Context)) error {
	if f == nil {
		return errNil("GoContext", "function")
	}
	return c.schedule(task{withIt: f})
}

func (c *Conn) schedule(f task) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.finished {
		return c.sock.opError("go", net.ErrClosed)
	}
	more := c.extrasLocked()
	if f.f == nil {
		if f.ctx = c.endingLocked(); f.ctx.Err() != nil {
			return c.sock.opError("go", net.ErrClosed)
		}
	}
	fs := &c.loop.server.functions
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if c.loop.server.closing.Load()&askClose != 0 { // with mu held, or dropFunctionsLocked might have been before
		return c.sock.opError("go", net.ErrClosed)
	}
	t := &more.tasks
	t.queue = append(t.queue, f)
	c.loop.counts.Add(countWaiting, 1)
	if !t.inPool && !t.running {
		t.inPool = true
		fs.serve(c)
	}
	if len(t.queue) > fs.waitingMax {
		c.asked.Or(askWork)
	}
	return nil
}

// endingLocked returns the context that ends with the connection.
func (c *Conn) endingLocked() context.Context {
	more := c.extrasLocked()
	if more.ctx == nil {
		more.ctx, more.cancel = context.WithCancelCause(context.Background())
		if asked := c.asked.Load(); asked&askClose != 0 || asked&askEnd != 0 && more.why != ErrServerClosed {
			more.cancel(more.why)
		}
	}
	return more.ctx
}

// lostLocked drops functions that have not begun: those of GoContext, or all.
func (c *Conn) lostLocked(why error, all bool) {
	if c.more == nil {
		return
	}
	if c.more.cancel != nil {
		defer c.more.cancel(why)
	}
	fs := &c.loop.server.functions
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &c.more.tasks
	kept := t.queue[:0]
	for _, f := range t.queue {
		if f.f != nil && !all {
			kept = append(kept, f)
		}
	}
	c.loop.counts.Add(countWaiting, int64(len(kept)-len(t.queue)))
	clear(t.queue[len(kept):])
	t.queue = kept
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
	f, ok := fs.take(c)
	if !ok {
		return
	}
	returned := false
	defer func() {
		if !returned {
			c.panicked("Go", recover())
		}
		if !fs.again(c) && c.asked.Load()&(askClose|askEnd) != 0 {
			c.remind() // it may close now
		}
	}()
	f.run()
	returned = true
}

// take takes the first of c's functions. The loop goes on reading once half as many wait as may.
func (fs *functions) take(c *Conn) (f task, ok bool) {
	fs.mu.Lock()
	t := &c.more.tasks
	t.inPool = false
	waiting := len(t.queue)
	if ok = waiting > 0; ok {
		f = t.queue[0]
		t.queue[0] = task{}
		t.queue = t.queue[1:]
		t.running = true
		waiting--
		c.loop.counts.Add(countWaiting, -1)
	}
	resume := waiting <= fs.waitingMax/2 && c.asked.And(^askWork)&askWork != 0
	fs.mu.Unlock()
	if resume {
		c.remind()
	}
	return f, ok
}

// again puts c, whose function has run, back into the queue if it has more.
func (fs *functions) again(c *Conn) bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &c.more.tasks
	t.running = false
	if len(t.queue) > 0 {
		t.inPool = true
		fs.serve(c)
		return true
	}
	t.queue = nil
	return false
}

// remind makes the loop look after the connection.
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
	t := &c.more.tasks
	return t.running || len(t.queue) > 0
}
