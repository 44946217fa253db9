package h2

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// item is a piece of work for a worker.
type item struct {
	c    *Conn
	s    *Stream // of itemStream and itemResume
	kind itemKind
}

type itemKind uint8

const (
	itemTurn   itemKind = iota // read what is there
	itemAlarm                  // the same, after what is due
	itemStream                 // call a handler
	itemFlush                  // send the output
	itemTaking                 // see whether the client takes it
	itemResume                 // call the Resume of a handler whose stream is detached
)

func (it item) work() {
	switch it.kind {
	case itemTurn, itemAlarm:
		if it.kind == itemAlarm {
			it.c.alarm() // as read would, whose error has addresses: a system call
		}
		if s := it.c.turn(); s != nil {
			s.run() // here and not in turn, whose frame would stay below a handler that waits
		}
	case itemStream:
		it.s.run()
	case itemFlush:
		it.c.flushQueuedTurn()
	case itemTaking:
		it.c.checkTaking()
	case itemResume:
		it.s.resume()
	}
}

// look visits the loop of the connection, for a worker that has nothing else to do. A client's does not
// linger: servers seldom answer that soon, and its callers need the processor.
func (it item) look(linger bool) {
	if pc := it.c.below.pc; pc != nil && !(linger && it.c.server.client) {
		serving.Look(pc, linger)
	}
}

// socket returns the socket of the connection if such a worker had better wait for it.
func (it item) socket() workers.Socket {
	if pc := it.c.below.pc; pc != nil {
		return serving.Socket(pc)
	}
	return nil
}

// turn is the memory that a worker needs for a connection's turn.
type turn struct {
	buf     [turnBytes]byte
	frame   http2.Frame
	event   http2.Event
	request Request
	batch   []*Stream    // that were opened, and are to be served
	wakes   []*sync.Cond // of goroutines that wait for what was applied
	woke    bool         // one of them was woken
}

const (
	turnBytes     = 32 << 10
	turnBytesMost = 256 << 10 // that are read before other connections have their turn
	framesMost    = 32        // that are applied before others have the connection's lock
)

var turns = sync.Pool{New: func() any { return new(turn) }}

func (t *turn) release() {
	clear(t.batch)
	t.batch = t.batch[:0]
	t.event, t.request, t.woke = http2.Event{}, Request{}, false
	turns.Put(t)
}

// waker is a Conn as the engine's handler.
type waker Conn

// OnReadable is called when there is something to read, when the alarm's time has come, and when
// the connection was closed.
func (w *waker) OnReadable(err error) {
	kind := itemTurn
	if errors.Is(err, os.ErrDeadlineExceeded) {
		kind = itemAlarm
	}
	w.workers.Serve(item{c: (*Conn)(w), kind: kind})
}

// OffLoop allows a worker that visits a loop to call OnReadable.
func (w *waker) OffLoop() {}

// awaken makes a worker take the connection's turn.
func (c *Conn) awaken() { c.workers.Serve(item{c: c}) }

// arm lets the connection wait. The caller gives the reader's part away.
func (c *Conn) arm() {
	if err := serving.Arm(c.below.pc, (*waker)(c)); err != nil {
		c.awaken() // closed, or the alarm's time has come
	}
}

// outcome is how a turn ends.
type outcome uint8

const (
	waits outcome = iota // nothing is left to read: the engine tells of more
	again                // there may be more
	over                 // the connection is closed
)

// turn is a worker's turn with a connection on a loop. All that is there is read and applied, so
// that bodies are there, as far as they have come, before their handlers begin. Then the connection
// waits. Only after that does this worker call a handler, or send: a client may write without
// reading, and a handler may wait for what the client writes. turn returns the stream whose handler
// this worker calls, or nil.
func (c *Conn) turn() (first *Stream) {
	t := turns.Get().(*turn)
	end := c.read(t)
	for i, s := range t.batch {
		if i == 0 {
			first = s
		} else {
			c.workers.Serve(item{c: c, s: s, kind: itemStream})
		}
	}
	woke := t.woke
	t.release()
	switch end {
	case waits:
		c.arm()
	case again:
		c.awaken()
	}
	c.mu.Lock()
	if first == nil && woke && c.hasOutputLocked() {
		c.mu.Unlock()
		c.workers.Yield() // the handler's answer goes along with what waits, as that to a PING
		c.mu.Lock()
	}
	if first == nil {
		c.flushLocked(nil)
	} else if c.hasOutputLocked() {
		c.flushSoonLocked() // the handler may block
	}
	c.unlock()
	return first
}

// read reads what is there, and applies it.
func (c *Conn) read(t *turn) outcome {
	if p := c.unread; p != nil {
		c.unread = nil
		c.receive(t, *p)
	}
	for n := 0; n < turnBytesMost; {
		m, dry, err := c.tryRead(t.buf[:])
		n += m
		if m > 0 {
			c.receive(t, t.buf[:m])
		}
		switch {
		case isTimeout(err):
			c.alarm()
		case err != nil:
			c.gone(err)
			return over
		case dry:
			return waits
		}
		if !c.isServing() {
			return c.discard(t)
		}
	}
	return again
}

// tryRead reads what is there, without waiting: but crypto/tls may answer what it reads.
func (c *Conn) tryRead(p []byte) (n int, dry bool, err error) {
	tc := c.below.tls()
	if tc == nil {
		return serving.TryRead(c.below.pc, nil, p)
	}
	c.mu.Lock()
	c.beginWriteLocked()
	c.mu.Unlock()
	n, dry, err = serving.TryRead(c.below.pc, tc, p)
	c.mu.Lock()
	c.endWriteLocked()
	c.mu.Unlock()
	return n, dry, err
}

// readLoop reads from a connection that no loop watches.
func (c *Conn) readLoop(unread []byte) {
	t := turns.Get().(*turn)
	c.receive(t, unread)
	for {
		c.queueBatch(t)
		n, err := c.below.nc.Read(t.buf[:])
		if n > 0 {
			c.receive(t, t.buf[:n])
		}
		switch {
		case err == nil:
		case isTimeout(err):
			c.alarm()
		default:
			c.gone(err)
			c.queueBatch(t)
			t.release()
			return
		}
	}
}

// queueBatch makes workers serve the streams that were opened, and send the output.
func (c *Conn) queueBatch(t *turn) {
	for _, s := range t.batch {
		c.workers.Serve(item{c: c, s: s, kind: itemStream})
	}
	clear(t.batch)
	t.batch = t.batch[:0]
	c.mu.Lock()
	c.flushSoonLocked()
	c.unlock()
}

func (c *Conn) isServing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == alive
}

// discard reads what comes after the end.
func (c *Conn) discard(t *turn) outcome {
	for c.discarded < serving.LingerBytes {
		m, dry, err := serving.TryRead(c.below.pc, nil, t.buf[:]) // the records of TLS are of no interest
		c.discarded += int32(m)
		switch {
		case isTimeout(err):
			if c.alarm(); c.hasClosed() {
				return over
			}
		case err != nil:
			c.gone(err)
			return over
		case dry:
			return waits
		}
	}
	c.gone(errTooMuch)
	return over
}

var errTooMuch = errors.New("the client goes on sending")

func (c *Conn) hasClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase == closed
}

// gone ends the connection, because nothing more can be read.
func (c *Conn) gone(err error) {
	c.mu.Lock()
	c.failLocked(NoError, err)
	c.unlock()
}

// receive finds the frames in p, and applies them.
func (c *Conn) receive(t *turn, p []byte) {
	now := c.below.now()
	c.mu.Lock()
	c.core.Advance(time.Duration(now - c.clock.heardAt))
	c.clock.heardAt = now
	for n := 1; c.phase == alive && len(p) > 0; n++ {
		read, ok := c.core.Parse(p, &t.frame)
		if p = p[read:]; ok {
			c.applyLocked(t)
		}
		if n%framesMost == 0 || c.calls.any() || c.calls.states.any() {
			c.unlock()
			t.wake()
			c.mu.Lock()
		}
	}
	c.unlock()
	t.wake()
}

// wakeLater wakes a goroutine that waits, if one does, when the lock is released: it would wait for that
// next.
func (t *turn) wakeLater(s *Stream) {
	if s.cond != nil {
		t.wakes = append(t.wakes, s.cond)
	}
}

func (t *turn) wake() {
	for i, cond := range t.wakes {
		cond.Broadcast()
		t.wakes[i] = nil
		t.woke = true
	}
	t.wakes = t.wakes[:0]
}

// applyLocked applies a frame. It may release mu, to call code of the user's.
func (c *Conn) applyLocked(t *turn) {
	ev := &t.event
	began := c.core.Settled()
	if t.frame.IsPing() {
		c.lendLocked() // gRPC's clients send one with most requests: the answers go together
	}
	if c.server.client && t.frame.IsMessage() {
		c.heardLocked()
	}
	err := c.core.Apply(&t.frame, ev)
	if !began {
		c.setAlarmLocked() // another time counts now
		if c.core.Settled() && err == nil {
			c.changedLocked(Ready)
			c.tellLocked() // before a stream is accepted
		}
	}
	switch ev.Kind {
	case http2.RequestStarted:
		c.unlock()
		h := c.accept(t)
		c.mu.Lock()
		if c.phase == alive {
			c.openLocked(t, h)
		}
	case http2.DataReceived:
		s := ev.Stream.User.(*Stream)
		if s.dataLocked(ev) {
			t.wakeLater(s)
		}
	case http2.TrailersEnded:
		s := ev.Stream.User.(*Stream)
		s.trailersLocked(ev.Fields)
		s.bodyEndedLocked(ev)
		t.wakeLater(s)
	case http2.StreamReset:
		s := ev.Stream.User.(*Stream)
		if ev.Local {
			c.workers.counts.Add(countResetsByServer, 1)
		} else {
			c.workers.counts.Add(countResetsByClient, 1)
		}
		if ev.Long && s.readErr == nil {
			s.readErr = ErrLongBody
		}
		s.endLocked(&StreamError{ID: s.core.ID(), Code: ev.Code, Remote: !ev.Local, Err: c.breachOf(ev)})
	case http2.StreamRefused:
		c.workers.counts.Add(countRefused, 1)
	case http2.PingReceived:
		if c.server.pings != nil {
			answered := ev.Answered
			c.unlock()
			c.guard(func() { c.server.pings.Ping(c, answered) })
			c.mu.Lock()
		}
	case http2.PingAcked:
		c.pongLocked([8]byte(ev.Data))
	case http2.PeerGoesAway:
		if c.server.client {
			c.unservedLocked(ev)
		}
		c.hangUpIfDoneLocked()
	case http2.AnswerReceived:
		ev.Stream.User.(*Stream).answerLocked(t)
	}
	if err != nil {
		c.breachLocked(err)
	}
}

// accept calls the server's handler, and returns what serves a request, or nil to refuse it.
func (c *Conn) accept(t *turn) (h StreamHandler) {
	ev, r := &t.event, &t.request
	from := ev.Request
	*r = Request{
		Method: from.Method, Scheme: from.Scheme, Authority: from.Authority, Path: from.Path, Protocol: from.Protocol,
		HasAuthority: from.HasAuthority(), BadTarget: from.BadTarget,
		ContentLength: from.ContentLength, Problem: from.Problem, Fields: ev.Fields, End: ev.End,
	}
	c.guard(func() { h = c.server.handler.Accept(c, r) })
	return h
}

// guard calls a function of the user's that the connection can't go on without. It logs a panic. If
// the function ends its goroutine, which had the turn, the connection is closed. c.mu is not held.
func (c *Conn) guard(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if c.server.config.Crash {
			return // a panic goes on
		}
		if reason := recover(); reason != nil {
			c.server.logPanic(c, reason)
		} else {
			go c.Close()
		}
	}()
	f()
	returned = true
}

// openLocked opens the stream of a request.
func (c *Conn) openLocked(t *turn, h StreamHandler) {
	ev := &t.event
	if t.request.Problem == TooLarge {
		c.workers.counts.Add(countLargeHeaders, 1)
	}
	switch code := h.(type) {
	case nil:
		c.refuse(ev, RefusedStream)
		return
	case refusal:
		c.refuse(ev, ErrCode(code))
		return
	}
	s := h.Stream()
	s.conn, s.handler, s.core.User = c, h, s
	ev.Request.ContentLength = t.request.ContentLength // Accept may have changed it
	c.core.Open(&s.core, ev)
	if ev.End {
		s.readErr = io.EOF
	} else {
		s.expects = expects(ev.Fields)
	}
	c.workers.counts.Add(countStreams, 1)
	if c.open++; c.open == 1 {
		c.workers.counts.Add(countActive, 1)
		c.clock.quietAt = 0
		c.changedLocked(Active)
		c.tellLocked() // before the handler is called
	}
	if c.core.Handlers() > c.server.config.Streams {
		w := c.makeWaiting()
		w.unstarted = append(w.unstarted, s)
		return
	}
	c.queued++
	t.batch = append(t.batch, s)
}

// expects reports whether the fields of a request ask for 100 Continue before its body.
func expects(fields []Field) bool {
	for i := range fields {
		if f := &fields[i]; f.Name.Key() == "Expect" && strings.EqualFold(f.Value, "100-continue") {
			return true
		}
	}
	return false
}

func (c *Conn) refuse(ev *http2.Event, code ErrCode) {
	c.workers.counts.Add(countRefused, 1)
	c.core.Refuse(ev, code)
}

// run calls the handler of a stream, unless the stream has ended already.
func (s *Stream) run() {
	c := s.conn
	c.mu.Lock()
	c.queued--
	serve := s.err == nil
	c.mu.Unlock()
	if !serve {
		s.finish(true)
		return
	}
	returned := false
	defer s.finishAbrupt(&returned)
	s.handler.Serve()
	returned = true
	s.finish(true)
}

// finishAbrupt ends a stream whose handler has panicked or ended its goroutine.
func (s *Stream) finishAbrupt(returned *bool) {
	if *returned {
		return
	}
	if c := s.conn; !c.server.config.Crash {
		if reason := recover(); reason != nil {
			c.server.logPanic(c, reason)
		}
	} else if panics() {
		return // clients are to see that the program has ended: they may try again elsewhere
	}
	s.finish(false)
}

// panics reports whether the deferred function that calls it was called by a panic. It doesn't recover,
// which would make the panic's text another one.
func panics() bool {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(0, pcs[:])])
	for {
		switch f, more := frames.Next(); {
		case f.Function == "runtime.gopanic":
			return true
		case f.Function == "runtime.Goexit", !more:
			return false
		}
	}
}

// finish ends a stream after its handler, unless it was detached, or finished, and sends the waiting
// answers, unless a queued stream of the connection will do that.
func (s *Stream) finish(returned bool) {
	c := s.conn
	c.mu.Lock()
	if !s.served && !(s.detached && returned) {
		s.finishLocked(returned)
	}
	if c.queued == 0 {
		c.flushLocked(nil)
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
	s.served = true
	s.setDetachedLocked(false)
	s.dropBodyLocked()
	s.unqueueLocked()
	s.wakeLocked()
	if s.extras != nil {
		s.extras.stop()
	}
	c.core.Returned()
	c.startNextLocked()
	if c.open--; c.open == 0 {
		c.quietLocked()
	}
}

// startNextLocked calls the handler of a stream that has waited for another handler to return.
func (c *Conn) startNextLocked() {
	if c.waiting == nil {
		return
	}
	all := c.waiting.unstarted
	s := all[0]
	all[0] = nil
	if c.waiting.unstarted = all[1:]; len(all) == 1 {
		c.waiting = nil
	}
	c.queued++
	c.workers.Serve(item{c: c, s: s, kind: itemStream})
}
