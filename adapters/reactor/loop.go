package reactor

import (
	"fmt"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/shared/counters"
)

// readBytes is the size of the buffer that a loop reads into. A recv(2) of that size does not have to
// tell the scheduler.
const readBytes = 64 << 10

// Loop is a loop and the connections of a server on it.
type Loop struct {
	// immutable
	server   *Server
	engine   engineLoop
	handler  Handler
	ender    EndHandler      // the handler, if it is one; else nil
	writable WritableHandler // the same
	index    int
	name     string // of the handler's type
	counts   *counters.Cell[counter]
	attendFn func() // the method attend, made once
	walkFn   func() // the method walkOn, made once

	// owned by the loop
	conns     []*Conn // open, in no order
	input     []byte  // read into; nil until something is
	feeding   []byte  // what Data, or End, is called with, while it runs
	fed       *Conn   // the connection that it is called for; nil if neither runs
	attending []*Conn // taken from todo; the first attended ones are nil, and done
	attended  int
	jobs      []job // for the next walk
	walk      walk
	walking   bool // walkOn will run: there are jobs
	inBatch   bool // attend will run before the loop waits

	// guarded by the mu of the connection whose handler runs
	collected []byte

	// atomic
	longest atomic.Int64 // callback, in nanoseconds

	mu struct {
		sync.Mutex
		dispatching bool    // the loop handles events, and attends to todo at the end
		scheduled   bool    // attend is a task of the loop
		todo        []*Conn // to attend to: see Conn.remindLocked
	}
}

func newLoop(s *Server, e engineLoop, index int, h Handler) *Loop {
	l := &Loop{server: s, engine: e, handler: h, index: index, counts: process.Next()}
	l.ender, _ = l.handler.(EndHandler)
	l.writable, _ = l.handler.(WritableHandler)
	l.name = fmt.Sprintf("%T", l.handler)
	l.attendFn, l.walkFn = l.attend, l.walkOn
	return l
}

// Submit runs f on the loop's goroutine, soon, as callbacks do: f must not block, and what it
// writes is sent at the end of the batch. Submit does not wait. If f panics that goes to the log.
//
// It fails with [net.ErrClosed], and f doesn't run, if the loop has ended: a loop lives as long as
// listeners or connections of any kind are on it. For as long as a connection of the server's is open
// its loop lives.
func (l *Loop) Submit(f func()) error {
	if f == nil {
		return errNil("Submit", "function")
	}
	if !l.engine.Retain() {
		return net.ErrClosed
	}
	l.engine.Submit(func() {
		defer l.engine.Release()
		defer func() {
			if v := recover(); v != nil {
				l.server.config.Log.Error("reactor: a function of Loop.Submit panicked",
					"handler", l.name, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			}
		}()
		l.begin()
		f()
	})
	return nil
}

// Index returns the number that Config.LoopHandler got: 0, 1, and so on.
func (l *Loop) Index() int { return l.index }

// Handler returns the handler of the loop's connections.
func (l *Loop) Handler() Handler { return l.handler }

// begin notes that the loop handles events: writes are sent at the end of the batch.
func (l *Loop) begin() {
	if l.inBatch {
		return
	}
	l.inBatch = true
	l.mu.Lock()
	l.mu.dispatching = true
	l.mu.Unlock()
	l.engine.Defer(l.attendFn)
}

// attend does what connections wait for, at the end of a batch or as a task of the loop. Requests that
// come while it runs, and those beyond batchConns, wait for the next round, so that events have their
// turn.
func (l *Loop) attend() {
	l.inBatch = true
	l.mu.Lock()
	l.mu.dispatching = true
	l.mu.scheduled = false
	l.attending, l.mu.todo = append(l.attending, l.mu.todo...), l.mu.todo[:0]
	l.mu.Unlock()
	done := false
	defer func() {
		if !done { // a handler has ended the loop's goroutine; another goes on
			l.engine.Defer(l.attendFn)
		}
	}()
	for i := 0; i < batchConns && l.attended < len(l.attending); i++ {
		next := l.attended // the oldest
		if i%2 == 0 {      // the newest, so that it needn't wait for a long list
			next = len(l.attending) - 1
		}
		c := l.attending[next]
		l.attending[next] = nil
		if next == l.attended {
			l.attended++
		} else {
			l.attending = l.attending[:next]
		}
		c.attend()
	}
	done = true
	left := l.attended < len(l.attending)
	if !left {
		l.attending, l.attended = l.attending[:0], 0
		if cap(l.attending) > attendingKept {
			l.attending = nil
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if cap(l.mu.todo) > attendingKept && len(l.mu.todo) == 0 {
		l.mu.todo = nil
	}
	if left || len(l.mu.todo) > 0 {
		l.engine.Defer(l.attendFn)
		return
	}
	l.mu.dispatching = false
	l.inBatch = false
}

// attendingKept is the longest list of connections that is kept for the next batch: 64 KiB.
const attendingKept = 8 << 10

// remind makes attend look after c. With onlyIfBusy it does nothing, and reports false, unless the loop
// is at work. The caller holds c.mu.
func (l *Loop) remind(c *Conn, onlyIfBusy bool) bool {
	if c.queued {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if onlyIfBusy && !l.mu.dispatching {
		return false
	}
	c.queued = true
	l.mu.todo = append(l.mu.todo, c)
	if !l.mu.dispatching && !l.mu.scheduled {
		l.mu.scheduled = true
		l.engine.Submit(l.attendFn)
	}
	return true
}

func (l *Loop) add(c *Conn) {
	c.index = int32(len(l.conns))
	l.conns = append(l.conns, c)
}

func (l *Loop) remove(c *Conn) {
	last := len(l.conns) - 1
	moved := l.conns[last]
	l.conns[c.index] = moved
	moved.index = c.index
	l.conns[last] = nil
	l.conns = l.conns[:last]
}

func (l *Loop) readBuffer() []byte {
	if l.input == nil {
		l.input = make([]byte, readBytes)
	}
	return l.input
}

// timed notes how long a callback took that began at start, and returns the time.
func (l *Loop) timed(c *Conn, call string, start int64) (now int64) {
	now = monotime.Now()
	took := now - start
	if took > l.longest.Load() {
		l.longest.Store(took)
	}
	if took >= int64(loop.SlowPass) {
		l.counts.Add(countSlowCallbacks, 1)
	}
	if took > int64(l.server.config.SlowCallback) && (l.server.config.SlowCallback > 0 || took >= int64(verySlow)) {
		l.server.config.Log.Warn("reactor: a callback held its loop up; all other connections of the loop waited",
			"handler", l.name, "call", call, "took", time.Duration(took), "peer", c.RemoteAddr())
	}
	return now
}

// verySlow is how long a callback takes that is logged in any case: it blocks, and holds up connections
// of other servers on the group's loop, too.
const verySlow = time.Second
