package reactor

import (
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
)

// A job is a task for all connections of a loop. It is done in batches, between which the loop handles
// events, so connections don't have to wait for a message to thousands of others. A walk over the
// connections does all jobs that wait when it begins, in their order, connection by connection. So all
// connections get two broadcasts in the same order, the bytes that waited for one connection are sent
// together, and no job waits for more than the rest of a walk.
//
//	Loop.jobs  walk.jobs  meaning               leaves by
//	none       none       nothing to do         submitJob: a walk
//	any        some       a walk is under way   it has reached the last connection: a walk with all jobs that
//	                                            wait, or nothing to do; a job alone: a walk with that
//
// Jobs are bounded, because peers may cause them: see broadcasts.

const (
	// batchConns is how many connections a batch has, before the loop looks for events. A write to
	// one takes 5 to 20 µs on loopback, so that is a millisecond at most.
	batchConns = 64

	// batchTime ends a batch early, if a function of Each takes long. It is in nanoseconds.
	batchTime = int64(1e6)
)

// job is a call of do for each of a loop's connections that is open when the walk gets to it.
type job struct {
	do   func(c *Conn)
	done func() // called when all is done, or dropped
}

// walk is jobs under way.
type walk struct {
	jobs  []job
	conns []*Conn // that it has yet to reach, in no order
}

// submitJob makes the loop do a job soon. alone drops all jobs before it. If the loop has ended, only
// done is called.
func (l *Loop) submitJob(j job, alone bool) {
	if !l.engine.Retain() {
		j.done()
		return
	}
	l.engine.Submit(func() {
		if alone {
			l.dropJobs()
		}
		l.jobs = append(l.jobs, j)
		if !l.walking {
			l.walking = true
			l.walkOn()
		}
	})
}

// dropJobs ends all jobs as if they were done. If a walk is under way its next batch begins another.
func (l *Loop) dropJobs() {
	for _, j := range slices.Concat(l.walk.jobs, l.jobs) {
		l.engine.Release()
		j.done()
	}
	l.walk, l.jobs = walk{}, nil
}

// walkOn does one batch of a walk.
func (l *Loop) walkOn() {
	defer func() { // also if a function of the program ends the goroutine
		if l.walking {
			l.engine.Defer(l.walkFn)
		}
	}()
	l.begin()
	w := &l.walk
	if len(w.jobs) == 0 {
		*w, l.jobs = walk{l.jobs, slices.Clone(l.conns)}, nil
	}
	start := monotime.Now()
	for n := 0; len(w.conns) > 0 && n < batchConns && monotime.Now()-start < batchTime; n++ {
		last := len(w.conns) - 1
		c := w.conns[last]
		w.conns[last] = nil
		w.conns = w.conns[:last]
		c.doJobs(w.jobs)
	}
	if len(w.conns) > 0 {
		return
	}
	done := w.jobs
	*w = walk{}
	l.walking = len(l.jobs) > 0
	for _, j := range done {
		l.engine.Release()
		j.done()
	}
}

// doJobs does the jobs of a walk for one connection, and then sends what they have written.
func (c *Conn) doJobs(jobs []job) {
	if c.phase != open && c.phase != ending {
		return
	}
	c.enter()
	for _, j := range jobs {
		if c.phase == hijacked {
			return
		}
		j.do(c)
	}
	c.leave()
}

// broadcasts are a server's jobs that a loop has yet to do. If the server passes a peer's messages on
// to all, each one costs each loop a write to each of its connections. So while more than
// WriteHighWaterMark bytes wait, a connection whose Data has ever made a job isn't read, until half of
// them are done. WriteHardLimit bounds jobs from elsewhere: beyond it Broadcast fails.
type broadcasts struct {
	highWaterMark int64 // immutable

	// atomic
	bytes atomic.Int64  // of those that wait
	made  atomic.Uint32 // counts them: Data has made some if it differs

	mu struct {
		sync.Mutex
		held []*Conn // that aren't read: each has askWalks
	}
}

// jobBytes is the memory that a job takes besides its bytes; a call of Each counts as this.
const jobBytes = 512

// begin counts a job of n bytes, unless hardLimit bytes would wait; if none wait, it may have any
// length.
func (b *broadcasts) begin(n, hardLimit int64) bool {
	if all := b.bytes.Add(n); all > n && all > hardLimit {
		b.end(n)
		return false
	}
	b.made.Add(1)
	return true
}

// end subtracts the job's bytes. Once few wait the loops read on.
func (b *broadcasts) end(n int64) {
	few := b.bytes.Add(-n) <= b.highWaterMark/2
	b.mu.Lock() // after that: see hold
	var held []*Conn
	if few {
		held, b.mu.held = b.mu.held, nil
	}
	b.mu.Unlock()
	for _, c := range held {
		c.asked.And(^askWalks)
		c.remind()
	}
}

// hold stops reading a connection whose Data makes jobs, if much waits, and reports whether it did.
func (b *broadcasts) hold(c *Conn) bool {
	if b.bytes.Load() <= b.highWaterMark {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes.Load() <= b.highWaterMark { // again, or the end that should find c might be over
		return false
	}
	if c.asked.Or(askWalks)&askWalks == 0 {
		b.mu.held = append(b.mu.held, c)
	}
	return true
}

// walkAll makes each loop do a job of n bytes, and calls done when the last has. It does nothing, and
// reports false, if more than hardLimit would wait.
func (s *Server) walkAll(do func(c *Conn), n, hardLimit int64, done func()) bool {
	n += jobBytes
	if !s.broadcasts.begin(n, hardLimit) {
		return false
	}
	loops := s.loops()
	var left atomic.Int32
	left.Store(int32(len(loops)) + 1)
	end := func() {
		if left.Add(-1) == 0 {
			done()
			s.broadcasts.end(n)
		}
	}
	for _, l := range loops {
		l.submitJob(job{do, end}, false)
	}
	end() // of this call, also if there is no loop
	return true
}

// Broadcast writes p to all open connections. It copies p once. Each loop soon writes to its own
// connections, some at a time; Broadcast does not wait. All connections get the broadcasts of one
// goroutine in their order.
//
// A connection that can't take p within WriteHardLimit misses it. If missed is not nil, it is called
// for that connection, on its loop, and decides what happens: it may write something else, close the
// connection, or do nothing. If missed is nil, the connection is closed with [ErrWriteBufferFull],
// even if the handler is a [WritableHandler], so that no peer misses a message and gets the next.
//
// Broadcasts also wait until each loop gets to them. While more than WriteHighWaterMark bytes of them
// wait, a connection whose Data calls Broadcast isn't read, until half as many wait. So a peer whose
// messages go to all sends no faster than all can be written to. If Data gets many messages at once,
// it should take one per call, or broadcast them as one. If more than WriteHardLimit bytes would wait,
// Broadcast fails with ErrWriteBufferFull, and no connection gets p or is closed. That happens to
// callers other than Data, and when hundreds of connections begin to send at once. Shutdown first lets
// waiting broadcasts go, and Close drops them.
func (s *Server) Broadcast(p []byte, missed func(c *Conn)) error {
	if len(p) == 0 {
		return nil
	}
	b := pool.Get(len(p))
	copy(b.Bytes(), p)
	if !s.walkAll(func(c *Conn) { c.broadcast(b, missed) }, int64(cap(b.Bytes())), int64(s.config.WriteHardLimit), b.Release) {
		b.Release()
		return ErrWriteBufferFull
	}
	return nil
}

// broadcast writes b's bytes, or deals with a connection that can't take them.
func (c *Conn) broadcast(b *pool.Buffer, missed func(c *Conn)) {
	switch _, err := (*output)(c).write(missed != nil, b, b.Bytes()); {
	case !errors.Is(err, ErrWriteBufferFull):
	case missed == nil:
		c.end(askClose, ErrWriteBufferFull)
	default:
		c.call("Broadcast", func() { missed(c) })
	}
}

// Each soon calls f for each open connection, on its loop, some at a time. It does not wait. f must
// not block. A connection whose Data calls Each is held up as with Broadcast, but Each doesn't fail.
// Close drops calls that wait.
func (s *Server) Each(f func(c *Conn)) {
	if f == nil {
		panic("reactor: Each was called with a nil function")
	}
	s.walkAll(func(c *Conn) { c.call("Each", func() { f(c) }) }, 0, math.MaxInt64, func() {})
}
