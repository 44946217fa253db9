package reactor

import (
	"context"
	"net"

	"github.com/percore/percore/internal/monotime"
)

// tasks are a connection's functions of Go that wait or run. Functions of one connection run in order,
// one at a time; functions of different connections run concurrently: a worker runs one function of
// the connection that has waited longest. Each connection has its own bound, so a peer that sends many
// requests holds up only itself.
//
//	inPool  running  queue      meaning              leaves by
//	no      no       empty      nothing to do        Go: inPool
//	yes     no       non-empty  a worker will come   a worker takes the first: running
//	yes     no       empty      all were dropped     a worker comes: nothing to do; Go: as above
//	no      yes      any        the first runs       it ends: inPool if there are more, or nothing to do
//
// Guarded by the connection's mu.
type tasks struct {
	queue   []task
	inPool  bool
	running bool
}

// functions is a Conn with its tasks.
type functions Conn

// task is a function of Go, or of GoContext.
type task struct {
	f      func()
	withIt func(ctx context.Context) // if f is nil
}

// Go runs f on a goroutine of the server, where it may block. The functions of a connection run in the
// order of the calls, one at a time. Go does not wait. While more than Config.WaitingMax functions of
// the connection wait, it isn't read. The handler's Close is called when all functions have run, even
// if the connection is lost; only [Server.Close] drops functions that have not begun. Go fails with
// [net.ErrClosed] after Server.Close, after the handler's Close, and after a Hijack. If f panics, the
// connection ends.
func (c *Conn) Go(f func()) error {
	if f == nil {
		return errNil("Go", "function")
	}
	return (*functions)(c).schedule(task{f: f})
}

// GoContext is Go for work that is useless without the connection. If f hasn't begun when the
// connection ends, it is dropped, whichever side or error ends the connection, except for
// [Server.Shutdown]. If f is running, its context ends, with the error of the handler's Close as the
// cause. As in net/http, a peer that ends its stream ends the connection, unless the handler is an
// [EndHandler], since it is unknown whether the peer still reads. GoContext fails as Go does, and when
// the connection has ended.
func (c *Conn) GoContext(f func(ctx context.Context)) error {
	if f == nil {
		return errNil("GoContext", "function")
	}
	return (*functions)(c).schedule(task{withIt: f})
}

func (fs *functions) schedule(f task) error {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.finished {
		return fs.sock.opError("go", net.ErrClosed)
	}
	more := (*Conn)(fs).extrasLocked()
	if f.f == nil {
		if ctx := fs.endingLocked(); ctx.Err() != nil {
			return fs.sock.opError("go", net.ErrClosed)
		}
	}
	if fs.loop.server.closing.Load()&askClose != 0 { // with mu held, or endNow might have been before
		return fs.sock.opError("go", net.ErrClosed)
	}
	t := &more.tasks
	t.queue = append(t.queue, f)
	fs.loop.counts.Add(countWaiting, 1)
	if !t.inPool && !t.running {
		fs.serveLocked()
	}
	if len(t.queue) > fs.loop.server.config.WaitingMax {
		fs.asked.Or(askWork)
	}
	return nil
}

// endingLocked returns the context of GoContext, which ends with the connection.
func (fs *functions) endingLocked() context.Context {
	more := (*Conn)(fs).extrasLocked()
	if more.ctx == nil {
		more.ctx, more.cancel = context.WithCancelCause(context.Background())
		if asked := fs.asked.Load(); asked&askClose != 0 || asked&askEnd != 0 && more.why != ErrServerClosed {
			more.cancel(more.why)
		}
	}
	return more.ctx
}

// lostLocked drops functions that have not begun: those of GoContext, or all.
func (fs *functions) lostLocked(why error, all bool) {
	if fs.more == nil {
		return
	}
	if fs.more.cancel != nil {
		defer fs.more.cancel(why)
	}
	t := &fs.more.tasks
	kept := t.queue[:0]
	for _, f := range t.queue {
		if f.f != nil && !all {
			kept = append(kept, f)
		}
	}
	fs.loop.counts.Add(countWaiting, int64(len(kept)-len(t.queue)))
	clear(t.queue[len(kept):])
	t.queue = kept
}

// serveLocked gives c, which has waiting functions, to a worker. In a bubble of testing/synctest the
// worker is a goroutine of the bubble: the pool's goroutines must not be made there.
func (fs *functions) serveLocked() {
	fs.more.tasks.inPool = true
	if monotime.InBubble() {
		go fs.run()
		return
	}
	fs.loop.server.workers.Serve((*Conn)(fs))
}

// run runs the first of the functions. If others wait, the connection goes to the end of the queue.
func (fs *functions) run() {
	f, ok := fs.take()
	if !ok {
		return
	}
	returned := false
	defer func() {
		if !returned {
			(*Conn)(fs).panicked("Go", recover())
		}
		fs.ended()
	}()
	if f.f != nil {
		f.f()
	} else {
		f.withIt(fs.more.ctx)
	}
	returned = true
}

// take takes the first of the functions. The loop goes on reading once half as many wait as may.
func (fs *functions) take() (f task, ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &fs.more.tasks
	t.inPool = false
	if ok = len(t.queue) > 0; ok {
		f = t.queue[0]
		t.queue[0] = task{}
		t.queue = t.queue[1:]
		t.running = true
		fs.loop.counts.Add(countWaiting, -1)
	}
	if len(t.queue) <= fs.loop.server.config.WaitingMax/2 && fs.asked.And(^askWork)&askWork != 0 {
		fs.loop.remind((*Conn)(fs), false)
	}
	return f, ok
}

func (fs *functions) ended() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	t := &fs.more.tasks
	t.running = false
	switch {
	case len(t.queue) > 0:
		fs.serveLocked()
		return
	case fs.asked.Load()&(askClose|askEnd) != 0:
		fs.loop.remind((*Conn)(fs), false) // it may close now
	}
	t.queue = nil
}

func (c *Conn) remind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.remind(c, false)
}

func (fs *functions) hasAnyLocked() bool {
	return fs.more != nil && (fs.more.tasks.running || len(fs.more.tasks.queue) > 0)
}
