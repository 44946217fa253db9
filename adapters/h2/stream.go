package h2

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2/internal/body"
	"github.com/percore/percore/internal/http2"
)

// A Request is the header of a request.
type Request struct {
	Method, Scheme, Authority, Path string
	Protocol                        string // of extended CONNECT (RFC 8441)

	// HasAuthority says that there was an :authority, which may be empty. Without it, Authority is
	// the value of the field host.
	HasAuthority bool

	// BadTarget says that a field above is missing or not valid: see Config.AnyTarget.
	BadTarget bool

	// ContentLength is the length of the body that the client has declared, or -1. If the body has another
	// length, Read fails, and if it is longer the stream is reset, unless Accept sets ContentLength to -1.
	ContentLength int64

	// Problem is why an HTTP server refuses the request; nearly always Nothing. A HandlerFunc is not
	// called for other values.
	Problem Problem

	// Fields are all other fields, in the order in which they came.
	Fields []Field

	// End says that there is neither a body nor trailers.
	End bool
}

// A Stream is a request and its answer. [StreamHandler.Stream] returns a zero Stream; it must not be
// copied. All methods are safe for concurrent use, but two calls of Read wait for each other, and so
// do two calls that send.
type Stream struct {
	// immutable, from Accept's return on
	conn    *Conn
	handler StreamHandler

	reading sync.Mutex // held for a whole Read; before conn.mu
	sending sync.Mutex // held for a whole Send; before conn.mu

	// guarded by conn.mu
	core     http2.Stream
	cond     *cond // made by the first wait
	unread   body.Unread
	err      error // why the stream has ended early
	readErr  error // of Read, once the body is used up: io.EOF, or that it is short or late
	extras   *extras
	nextCall *Stream // see calls

	stage stage
	marks marks
	whole atomic.Bool // of a client: see incoming.wholeLocked
}

// A stage is how far a stream has come, as its handler or a client's caller sees it.
//
//	stage     meaning                                           leaves by
//	attached  the stream ends when Serve returns, or with       Detach: detached; Serve's return, Close:
//	          the caller's Close                                served; Move: served, and its successor detached
//	detached  it goes on when Serve has returned; Resume        Finish, an end of Resume that is no return:
//	          queues calls of the handler's Resume              served
//	served    it has ended for its handler                      (final)
//
// The core has the state that the peer knows: see [http2.Stream].
type stage uint8

const (
	attached stage = iota
	detached
	served
)

// marks are other things that have happened to a stream.
//
//	mark       means                                              set by            cleared by
//	answered   the header of the answer was sent                  Send              never
//	expects    a client sends no body before it gets 100          the request       Send of that, DATA
//	           Continue, which was not sent
//	hurried    Send and Write don't wait for the peer             Hurry             never
//	cancelled  the handler's Cancelled was called, or is about    the early end     never
//	           to be
type marks uint8

const (
	answered marks = 1 << iota
	expects
	hurried
	cancelled
)

func (m marks) has(mark marks) bool { return m&mark != 0 }

// ID returns the number of the stream.
func (s *Stream) ID() uint32 { return s.core.ID() }

// Conn returns the connection.
func (s *Stream) Conn() *Conn { return s.conn }

// Err returns why the stream has ended early, a [*StreamError] or a [*ConnError], or nil. It is not an
// early end if the answer is complete.
func (s *Stream) Err() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.err
}

// Reset ends the stream, unless it has ended, and sends the code to the client. Use NoError if the
// answer is complete and the rest of the request is not wanted.
func (s *Stream) Reset(code ErrCode) {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	s.resetSoonLocked(code, nil)
}

// Hurry makes running and later calls of Send and Write reset the stream with Cancel instead of
// waiting for the client. They still send what they can without waiting.
func (s *Stream) Hurry() {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	s.marks |= hurried
	if s.core.Queued() {
		s.resetSoonLocked(Cancel, nil)
	}
}

// resetSoonLocked is resetLocked, and makes a worker send the reset.
func (s *Stream) resetSoonLocked(code ErrCode, reason error) {
	s.resetLocked(code, reason)
	s.conn.flushSoonLocked()
}

func (s *Stream) resetLocked(code ErrCode, reason error) {
	c := s.conn
	if s.err != nil || s.stage == served || c.phase != alive {
		return
	}
	if code == NoError && s.core.WriteEnded() {
		s.partLocked()
		return
	}
	c.lend()
	if c.core.Reset(&s.core, code) {
		c.workers.counts.Add(countResetsByServer, 1)
		s.endLocked(&StreamError{ID: s.core.ID(), Code: code, Err: reason})
	}
}

// wasResetLocked ends a stream that the peer has reset, or this side because of what the peer did.
func (s *Stream) wasResetLocked(ev *http2.Event) {
	c := s.conn
	if ev.Local {
		c.workers.counts.Add(countResetsByServer, 1)
	} else {
		c.workers.counts.Add(countResetsByClient, 1)
	}
	if ev.Long && s.readErr == nil {
		s.readErr = ErrLongBody
	}
	s.endLocked(&StreamError{ID: s.core.ID(), Code: ev.Code, Remote: !ev.Local, Err: c.ruleOf(ev)})
}

func (s *Stream) endLocked(err error) {
	first := s.err == nil
	if first {
		s.err = err
	}
	s.conn.side.ended(s, first)
}

// lockUnlessWhole locks conn.mu. It reports false if the stream is whole: then reading has to be locked.
func (s *Stream) lockUnlessWhole() bool {
	if s.whole.Load() {
		return false
	}
	s.conn.mu.Lock()
	if s.whole.Load() {
		s.conn.mu.Unlock()
		return false
	}
	return true
}

// cond is what the goroutines of a stream wait on.
type cond struct {
	sync.Cond
	due atomic.Bool // a turn is about to wake them; written by the reader
}

// wakes are goroutines that wait for what a turn has applied. The turn wakes them when it has released
// the lock, which they need next, and each one once for everything that was applied.
type wakes struct {
	due  []*cond
	woke bool // one of them was woken
}

// add makes wake wake the goroutines that wait on at. at may be nil: none has waited yet.
func (w *wakes) add(at *cond) {
	if at != nil && !at.due.Load() {
		at.due.Store(true)
		w.due = append(w.due, at)
	}
}

func (w *wakes) wake() {
	for i, at := range w.due {
		at.Broadcast()
		at.due.Store(false) // from here on the stream's memory may be used again
		w.due[i] = nil
		w.woke = true
	}
	w.due = w.due[:0]
}

// releaser is a Conn as the Locker of the conditions. A wait releases mu, and doesn't lock it again,
// since all goroutines that a turn wakes would wait for it.
type releaser Conn

// Unlock implements [sync.Locker].
func (r *releaser) Unlock() { r.mu.Unlock() }

// Lock implements [sync.Locker].
func (r *releaser) Lock() {}

// waitLocked waits for wakeLocked. It may return without cause.
func (s *Stream) waitLocked() {
	s.leaveLocked()
	s.conn.mu.Lock()
}

// leaveLocked is waitLocked, but returns without mu.
func (s *Stream) leaveLocked() {
	c := s.conn
	if c.calls.any() {
		c.unlock()
		return
	}
	if s.cond == nil {
		s.cond = &cond{Cond: sync.Cond{L: (*releaser)(c)}}
	}
	s.cond.Wait()
}

// discardLocked drops unread bytes, and reports whether the peer gets the connection's credit for them.
func (s *Stream) discardLocked() bool {
	n := s.unread.Drop()
	if n == 0 || s.conn.phase != alive {
		return false
	}
	s.conn.core.Discarded(&s.core, n)
	return true
}

// servedLocked ends a stream for its handler, or its caller.
func (s *Stream) servedLocked() {
	s.enterLocked(served)
	s.unqueueLocked()
	s.wakeLocked()
	if s.extras != nil {
		s.extras.stop()
	}
}

func (s *Stream) enterLocked(next stage) {
	switch {
	case next == detached && s.stage != detached:
		s.conn.detached++
	case s.stage == detached && next != detached:
		s.conn.detached--
	}
	s.stage = next
}

func (s *Stream) unqueueLocked() {
	if s.conn.core.Unqueue(&s.core) {
		s.conn.sendersLocked(-1)
	}
}

// wakeLocked makes the goroutines that wait look again.
func (s *Stream) wakeLocked() {
	if s.cond != nil {
		s.cond.Broadcast()
	}
}

// extras has the parts that few streams need.
type extras struct {
	stream    *Stream // whose they are
	deadlines [2]Timer
	trailers  []Field // of the request
	filling   filling
	client    *clientPart // nil: it is a server's
}

func (s *Stream) makeExtrasLocked() *extras {
	if s.extras == nil { // a client's stream has some from the start
		s.extras = &extras{stream: s}
	}
	return s.extras
}

func (x *extras) stop() {
	for _, timer := range x.deadlines {
		if timer != nil {
			timer.Stop()
		}
	}
}

// filling is the memory of a goroutine that waits for bytes of a body. Bytes are copied there as they
// come, and take no other memory. The goroutine wakes when there are enough.
type filling struct {
	into  []byte // what is left to fill
	least int    // that many are still wanted; not positive: the goroutine does not wait
}

// take copies the beginning of p to the memory, and returns how many bytes.
func (f *filling) take(p []byte) (n int) {
	n = copy(f.into, p)
	f.into = f.into[n:]
	f.least -= n
	return n
}

// The deadlines of a stream.
const (
	readDeadline = iota // of Read, or of Answer
	writeDeadline
)

// setDeadline makes passed be called at t, with conn.mu held. The zero time removes the deadline.
func (s *Stream) setDeadline(which int, t time.Time, passed func(*Stream)) error {
	if !s.lockUnlessWhole() {
		return nil // what it limits is over
	}
	c := s.conn
	defer c.unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.stage == served:
		return ErrEnded
	}
	if s.extras == nil && t.IsZero() {
		return nil
	}
	x := s.makeExtrasLocked()
	timer := &x.deadlines[which]
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	if t.IsZero() {
		return nil
	}
	d := time.Until(t)
	if d <= 0 {
		passed(s)
		return nil
	}
	var set Timer
	set = c.below.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.unlock()
		if *timer == set && x.stream.stage != served { // else another was set meanwhile
			passed(x.stream)
		}
	})
	*timer = set
	return nil
}

var _ io.ReadWriter = (*Stream)(nil)
