package h2

import (
	"io"
	"net"
	"slices"
	"strings"

	"github.com/percore/percore/adapters/h2/internal/body"
	"github.com/percore/percore/internal/http2"
)

type serverSide struct{}

// accept opens the stream of a request, unless the handler refuses it. It returns the stream if its
// handler must be called now, or nil. It releases mu for the call of Accept, which may change
// ContentLength.
func (side serverSide) accept(c *Conn, ev *http2.Event) *Stream {
	var h StreamHandler
	r := (*Request)(ev.Request)
	c.unlock()
	c.guard(func() { h = c.handler.Accept(c, r) })
	c.mu.Lock()
	if c.phase != alive {
		return nil
	}
	if r.Problem == TooLarge {
		c.workers.counts.Add(countLargeHeaders, 1)
	}
	switch code := h.(type) {
	case nil:
		side.refuse(c, ev, RefusedStream)
		return nil
	case refusal:
		side.refuse(c, ev, ErrCode(code))
		return nil
	}
	return side.open(c, ev, h)
}

func (side serverSide) refuse(c *Conn, ev *http2.Event, code ErrCode) {
	side.refused(c)
	c.core.Refuse(ev, code)
}

func (serverSide) refused(c *Conn) { c.workers.counts.Add(countRefused, 1) }

// open opens the stream that h serves. It returns the stream if its handler must be called now.
func (serverSide) open(c *Conn, ev *http2.Event, h StreamHandler) *Stream {
	s := h.Stream()
	s.conn, s.handler, s.core.User = c, h, s
	c.core.Open(&s.core, ev)
	if ev.End {
		s.readErr = io.EOF
	} else if expectsContinue(ev.Fields) {
		s.marks |= expects
	}
	if c.openedLocked() {
		c.tellLocked() // before the handler is called
	}
	if c.core.Handlers() > c.config.Streams {
		w := c.makeWaiting()
		w.unstarted = append(w.unstarted, s)
		return nil
	}
	c.queued++
	return s
}

// expectsContinue reports whether the fields of a request ask for 100 Continue before its body.
func expectsContinue(fields []Field) bool {
	for i := range fields {
		if f := &fields[i]; f.Name.Key() == "Expect" && strings.EqualFold(f.Value, "100-continue") {
			return true
		}
	}
	return false
}

// serve calls the handler's Serve, unless the stream has already ended, or its Resume.
func (it item) serve() {
	c, s, resume := it.c, it.s, it.kind == itemResume
	c.mu.Lock()
	c.queued--
	ended := s.err != nil
	c.mu.Unlock()
	if ended && !resume {
		s.finish(true)
		return
	}
	returned := false
	defer catch(c, &returned, func(bool) { s.finish(false) })
	if resume {
		s.handler.(Resumer).Resume()
	} else {
		s.handler.Serve()
	}
	returned = true
	s.finish(true) // or it goes on, if it is detached
}

// finish ends a stream after its handler, unless it was detached or finished. It sends the answers that
// wait, unless a queued stream of the connection will.
func (s *Stream) finish(returned bool) {
	c := s.conn
	c.mu.Lock()
	if s.stage == attached || s.stage == detached && !returned {
		s.finishLocked(returned)
	}
	if c.queued == 0 {
		c.flushLocked()
	} else {
		c.flushSoonLocked()
	}
	c.hangUpIfDoneLocked()
	c.unlock()
}

func (s *Stream) finishLocked(returned bool) {
	c := s.conn
	outcome := countServed
	switch {
	case s.err != nil:
		outcome = countLost
	case s.core.Ended():
	case returned && s.core.WriteEnded():
		s.resetLocked(NoError, nil) // the rest of the request is not wanted
	default:
		outcome = countLost
		s.resetLocked(InternalError, nil)
	}
	c.workers.counts.Add(outcome, 1)
	s.servedLocked()
	s.unread.Drop()
	c.core.Returned()
	if w := c.waiting; len(w.unstarted) > 0 {
		c.queued++
		c.workers.Serve(item{c: c, s: w.unstarted[0], kind: itemStream})
		if w.unstarted = slices.Delete(w.unstarted, 0, 1); len(w.unstarted) == 0 {
			c.waiting = &nothingWaits
		}
	}
	if c.open--; c.open == 0 {
		c.quietLocked()
	}
}

// The rest of this file is for streams that go on, without a goroutine, after their handler's Serve
// has returned: see stage.

// A Resumer is a StreamHandler whose stream may be detached.
type Resumer interface {
	StreamHandler

	// Resume is called once for each call of the stream's Resume, on a goroutine of the pool. It may
	// block. If it panics the stream ends.
	Resume()
}

// Detach lets a server's stream go on after Serve returns, until Finish is called. Call it in Serve.
// The stream still counts as if its handler were running: Config.Streams limits both together.
// [StreamHandler]'s Cancelled is called if the stream ends early.
//
// It panics if the handler is not a [Resumer].
func (s *Stream) Detach() {
	if _, ok := s.handler.(Resumer); !ok {
		panic("h2: Detach was called on a stream whose handler is no Resumer")
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.stage != served {
		s.enterLocked(detached)
	}
}

// Move is Detach, and lets go of s and its handler. From then on to.Stream(), which must be new, is
// the stream, with its deadlines and unread bytes, and to is its handler, whose Serve is not called.
// The methods of s fail as if Serve had returned, and neither Serve's return nor its panic ends the
// stream. Call Move once, in Serve. It waits for a Send that is running.
//
// If the stream has already ended early, to.Stream().Err() says so, and Cancelled is called for s's
// handler and not for to.
func (s *Stream) Move(to Resumer) {
	if to == nil {
		panic("h2: Move was called with a nil Resumer")
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c, next := s.conn, to.Stream()
	c.mu.Lock()
	defer c.unlock()
	if s.err != nil && c.phase == alive && !s.core.Ended() { // it waits for its reset: see partLocked
		c.lend()
		c.core.Reset(&s.core, NoError)
		c.flushSoonLocked()
	}
	next.core.User = next
	c.core.Move(&s.core, &next.core)
	next.conn, next.handler = c, to
	next.unread, next.err, next.readErr, next.extras, next.marks = s.unread, s.err, s.readErr, s.extras, s.marks
	if s.stage == served {
		next.stage = served
	} else {
		next.enterLocked(detached)
	}
	s.enterLocked(served)
	s.unread, s.extras = body.Unread{}, nil
	if x := next.extras; x != nil {
		x.stream = next
		if x.filling.into != nil { // it is of a goroutine that reads from s
			s.extras = &extras{filling: x.filling}
			x.filling = filling{}
		}
	}
	s.wakeLocked()
}

// Resume makes a goroutine of the pool call the handler's Resume; the handler must be a [Resumer]. It
// doesn't block.
func (s *Stream) Resume() {
	c := s.conn
	c.mu.Lock()
	c.queued++
	c.mu.Unlock()
	c.workers.Serve(item{c: c, s: s, kind: itemResume})
}

// Finish ends a detached stream, as Serve's return ends others. Calls after the first have no effect.
func (s *Stream) Finish() {
	c := s.conn
	c.mu.Lock()
	was := s.stage
	if was == detached {
		s.enterLocked(attached) // until finish
	}
	c.mu.Unlock()
	if was == detached {
		s.finish(true)
	}
}

func (serverSide) settle(*Conn) {}

func (serverSide) sent(s *Stream) { s.conn.flushSoonLocked() }

func (serverSide) lend(s *Stream) {
	if c := s.conn; c.beginFlushLocked() {
		c.flushAllLocked(s)
	}
}

func (serverSide) maySend(*Conn, int) bool { return true }

func (serverSide) writeFailed(c *Conn, err error) { c.failLocked(err) }

func (serverSide) ended(s *Stream, _ bool) {
	s.unqueueLocked()
	s.wakeLocked()
	s.unread.Drop()
	if s.stage != served && !s.marks.has(cancelled) {
		s.marks |= cancelled
		s.nextCall, s.conn.calls.cancelled = s.conn.calls.cancelled, s
	}
}

// hangUp resets streams that are answered though their requests go on. Otherwise net/http's client
// would wait for the rest of the body, which it may read from somewhere, even after the connection has
// ended, and nothing would end that.
func (serverSide) hangUp(c *Conn) {
	c.core.Each(func(st *http2.Stream) {
		if st.WriteEnded() {
			c.lend()
			c.core.Reset(st, NoError)
		}
	})
}

// close lets a connection hang up first if it has streams that are answered though their requests go
// on: closing at once could take their resets away from the client.
func (serverSide) close(c *Conn, why *ConnError) {
	switch {
	case why != nil:
		c.abortLocked(why)
	case c.phase == alive && (c.parting > 0 || c.core.Answered() > 0):
		c.hangUpLocked(&ConnError{Code: NoError, Err: net.ErrClosed})
	case c.err == nil || c.err.Err != net.ErrClosed: // else it has hung up here; ErrServerClosed wraps it
		c.failLocked(net.ErrClosed)
	}
}
