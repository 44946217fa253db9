package h2

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

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

	// ContentLength is the length of the body as far as the client has declared it; -1 without. A
	// body of another length is an error of Read, and a longer one resets the stream, unless Accept
	// sets ContentLength to -1.
	ContentLength int64

	// Problem is why a server of HTTP refuses the request; Nothing for nearly all. A HandlerFunc is
	// not called for others.
	Problem Problem

	// Fields are all fields besides those above, in the order in which they came.
	Fields []Field

	// End says that there is neither a body nor trailers.
	End bool
}

// A Stream is a request and its answer. The zero value is what [StreamHandler.Stream] returns; it
// must not be copied. All methods are safe for concurrent use, but two calls of Read wait for each
// other, and so do two calls that send.
type Stream struct {
	// immutable, from Accept's return on
	conn    *Conn
	handler StreamHandler

	reading sync.Mutex // held for a whole Read; before conn.mu
	sending sync.Mutex // held for a whole Send; before conn.mu

	// guarded by conn.mu
	core     http2.Stream
	cond     *cond // made by the first wait
	unread   unread
	err      error // why the stream has ended early
	readErr  error // of Read, once the body is used up: io.EOF, or that it is short or late
	extras   *extras
	nextCall *Stream // see calls

	stage stage
	marks marks
	whole atomic.Bool // of a client: see wholeLocked
}

// A stage is how far a stream has come for its handler, or for a client's caller.
//
//	stage     meaning                                           leaves by
//	attached  the stream ends when Serve returns, or with       Detach: detached; Serve's return, Close:
//	          the caller's Close                                served; Move: served, and its successor detached
//	detached  it goes on when Serve has returned; Resume        Finish, an end of Resume that is no return:
//	          queues calls of the handler's Resume              served
//	served    it has ended for its handler                      (final)
//
// The core has the state of which the peer knows: see [http2.Stream].
type stage uint8

const (
	attached stage = iota
	detached
	served
)

// marks are what has happened to a stream besides.
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

// Err returns why the stream has ended early, a [*StreamError] or a [*ConnError], or nil. An answer
// that is complete is no early end.
func (s *Stream) Err() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.err
}

// A Message is a part of an answer, or all of it. Its parts are sent in this order: header, body,
// trailers.
type Message struct {
	// Status and Fields are a header, if Status is not 0. One below 200 is an interim answer.
	Status int
	Fields []Field

	Body []byte

	// Trailers, if not nil, are sent behind the body, and end the answer.
	Trailers []Field

	// End ends the answer.
	End bool

	// AtOnce makes Send fail with ErrNotAtOnce, instead of waiting, if windows or room don't let all of
	// Body go now. Then neither Body was sent nor what comes behind it.
	AtOnce bool

	// Hold lets the bytes wait for the next Send without it, Flush, or the return of Serve. It
	// suits the last Send of a handler that is about to return.
	Hold bool
}

// Send sends a part of the answer. It waits for the client's windows, as far as there is a body.
// The parts must come in the order of HTTP: interim answers, a header, bodies, and trailers or an
// end. Send doesn't check that, except that it sends no interim answer behind the header. The names
// of fields must be in lower case. Send fails and sends nothing if a field is not valid
// ([Field.Valid]) or is a pseudo-header field.
//
// If Send fails for another reason, a part of the message may have been sent: reset the stream.
func (s *Stream) Send(m Message) error {
	if err := m.check(); err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	err := s.sendLocked(&m)
	if !m.Hold {
		c.server.side.sent(s)
	}
	return err
}

// check returns an error if a field must not be sent.
func (m *Message) check() error {
	if m.Status != 0 && (m.Status < 100 || m.Status > 999) {
		return fmt.Errorf("h2: %d is no status", m.Status)
	}
	for _, fields := range [][]Field{m.Fields, m.Trailers} {
		for i := range fields {
			if f := &fields[i]; !f.Valid() || f.Name.Class().IsPseudo() {
				return fmt.Errorf("h2: the field %q must not be sent: its name or value is not valid", f.Name)
			}
		}
	}
	return nil
}

func (s *Stream) sendLocked(m *Message) error {
	c := s.conn
	if m.Status != 0 || len(m.Body) == 0 { // a body waits with its bytes
		if err := s.awaitRoomLocked(); err != nil {
			return err
		}
		c.lend()
	}
	last := m.End && m.Trailers == nil // END_STREAM goes with the header or the body
	if m.Status != 0 {
		switch {
		case m.Status >= 200:
			s.marks |= answered
		case s.marks.has(answered):
			return errLateInterim
		case m.Status == statusContinue:
			s.marks &^= expects
		}
		bare := last && len(m.Body) == 0
		if err := c.core.Headers(&s.core, m.Status, m.Fields, bare); err != nil || bare {
			return err
		}
	}
	if len(m.Body) > 0 || last {
		if m.AtOnce && !(c.takes(len(m.Body)) && c.core.Window(&s.core) >= len(m.Body)) {
			return ErrNotAtOnce
		}
		if err := s.sendBodyLocked(m.Body, last); err != nil {
			return err
		}
	}
	if m.Trailers != nil {
		if err := s.sendErrorLocked(); err != nil {
			return err
		}
		c.lend()
		return c.core.Trailers(&s.core, m.Trailers)
	}
	return nil
}

// ErrNotAtOnce is the error of Send for a message with AtOnce that would have to wait.
var ErrNotAtOnce = errors.New("h2: the body can't be sent without waiting")

// errLateInterim is for an interim answer, such as 100 Continue, behind the header of the answer:
// clients take it for a breach of the protocol.
var errLateInterim = errors.New("h2: an interim answer behind the answer's header")

// sendErrorLocked returns why nothing can be sent, or nil.
func (s *Stream) sendErrorLocked() error {
	switch {
	case s.err != nil:
		return s.err
	case s.stage == served, s.core.WriteEnded(), s.conn.server.config.endsWith(&s.core):
		return ErrEnded
	}
	return s.conn.clock.cutError()
}

// Write sends p as a part of the body.
func (s *Stream) Write(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	err = s.sendBodyLocked(p, false)
	c.server.side.sent(s)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush sends everything that waits on the connection, unless another goroutine is sending already,
// which sends this as well.
func (s *Stream) Flush() error {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	if s.err == nil {
		c.server.side.lend(s)
	}
	return s.err
}

// Reset ends the stream, unless it has ended. The client is told the code. NoError suits an answer
// that is complete, when the rest of the request is not wanted.
func (s *Stream) Reset(code ErrCode) {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	s.resetLocked(code, nil)
	c.flushSoonLocked()
}

// Hurry makes Send and Write, those that are under way and later ones, reset the stream with Cancel
// instead of waiting for the client. They send what they can without that.
func (s *Stream) Hurry() {
	c := s.conn
	c.mu.Lock()
	defer c.unlock()
	s.marks |= hurried
	if s.core.Queued() {
		s.resetLocked(Cancel, nil)
		c.flushSoonLocked()
	}
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
		if code == Cancel && c.server.config.pingResets {
			clientSide{}.countReset(s)
		}
		s.endLocked(&StreamError{ID: s.core.ID(), Code: code, Err: reason})
	}
}

// partTime is how long after its answer a stream is reset whose request goes on. curl drops an answer
// that it reads together with the reset (version 7.88). partMost is how many streams of a connection may
// wait for that; there is no need to keep more.
// A client that waits for 100 Continue has nothing under way, and is told at once: it must not take its
// time for an answer to that and send the body.
const (
	partTime = 100 * time.Millisecond
	partMost = 100
)

const statusContinue = 100

// partLocked ends a stream whose answer is complete, though its request is not. The client is told
// later, or when the connection ends, unless it has ended the stream by then. The stream counts as open
// until then. It holds no body: what comes is dropped.
func (s *Stream) partLocked() {
	c := s.conn
	if s.core.Ended() {
		return
	}
	n := s.unread.drop()
	s.endLocked(&StreamError{ID: s.core.ID(), Code: NoError})
	if c.parting == partMost || s.marks.has(expects) {
		c.lend()
		c.core.Reset(&s.core, NoError)
		return
	}
	c.core.Discarded(&s.core, n)
	c.parting++
	c.below.afterFunc(partTime, func() {
		c.mu.Lock()
		defer c.unlock()
		if c.parting--; c.parting == 0 {
			c.setAlarmLocked() // IdleTimeout counts again
		}
		if c.phase == alive && !s.core.Ended() {
			c.lend()
			c.core.Reset(&s.core, NoError)
			c.flushSoonLocked()
		}
		if !c.flushing && !c.waits() {
			c.idleLocked() // else when it is sent
		}
		c.hangUpIfDoneLocked()
	})
}

// endLocked ends the stream early.
func (s *Stream) endLocked(err error) {
	first := s.err == nil
	if first {
		s.err = err
	}
	s.conn.server.side.ended(s, first)
}

// Read reads bytes of the request's body, and waits for them. It returns io.EOF after the last
// byte. Then Trailers returns the trailers.
func (s *Stream) Read(p []byte) (n int, err error) { return s.read(p, min(len(p), 1)) }

// ReadFull fills p with bytes of the request's body, and waits for them. Its errors are those of
// [io.ReadFull]. Unlike that it does not wake for each part, and a long p is filled without a detour.
func (s *Stream) ReadFull(p []byte) (n int, err error) {
	if n, err = s.read(p, len(p)); n > 0 && err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Buffered returns how many bytes of the request's body Read returns without waiting.
func (s *Stream) Buffered() int {
	if !s.lockUnlessWhole() {
		s.reading.Lock()
		defer s.reading.Unlock()
		return s.unread.bytes()
	}
	defer s.conn.mu.Unlock()
	return s.unread.bytes()
}

// readErrorLocked returns why there are no more bytes to read, or nil.
func (s *Stream) readErrorLocked() error {
	switch {
	case s.readErr != nil:
		return s.readErr
	case s.err != nil:
		return s.err
	case s.stage == served:
		return ErrEnded
	}
	return nil
}

// Trailers returns the trailers of the request, once Read has returned io.EOF.
func (s *Stream) Trailers() []Field {
	if s.whole.Load() {
		return s.extras.trailers
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.extras == nil {
		return nil
	}
	return s.extras.trailers
}

// CloseRead drops the rest of the body: Read fails, and the client gets credit of the connection
// for what it sends there, but none of the stream.
func (s *Stream) CloseRead() {
	if !s.lockUnlessWhole() {
		s.dropWhole()
		return
	}
	c := s.conn
	defer c.unlock()
	if s.readErr == nil {
		s.readErr = ErrEnded
	}
	s.wakeLocked()
	n := s.unread.drop()
	if c.phase == alive && n > 0 {
		c.core.Discarded(&s.core, n)
		c.flushSoonLocked()
	}
}

// cond is what the goroutines of a stream wait on.
type cond struct {
	sync.Cond
	due atomic.Bool // a turn is about to wake them; written by the reader
}

// releaser is a Conn as the Locker of the conditions: a wait releases mu, and ends without it. All the
// goroutines that a turn wakes would wait for it.
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

// wakeLocked makes the goroutines that wait look again.
func (s *Stream) wakeLocked() {
	if s.cond != nil {
		s.cond.Broadcast()
	}
}

// extras has what few streams need.
type extras struct {
	stream      *Stream // whose they are
	read, write Timer   // the deadlines
	trailers    []Field // of the request
	filling     filling
	client      *clientPart // nil: it is a server's
}

func (s *Stream) makeExtrasLocked() *extras {
	if s.extras == nil { // a client's stream has some from the start
		s.extras = &extras{stream: s}
	}
	return s.extras
}

// stop stops the timers.
func (x *extras) stop() {
	for _, timer := range []Timer{x.read, x.write} {
		if timer != nil {
			timer.Stop()
		}
	}
}

// SetReadDeadline sets the time after which Read fails permanently with os.ErrDeadlineExceeded,
// once the bytes that have arrived are read. The zero time removes a deadline.
func (s *Stream) SetReadDeadline(t time.Time) error {
	return s.setDeadline(t, func(x *extras) *Timer { return &x.read }, func(s *Stream) {
		if s.readErr == nil {
			s.readErr = errDeadline
			s.wakeLocked()
		}
	})
}

// SetWriteDeadline sets the time at which the stream is reset with InternalError, unless the answer
// is complete by then. The zero time removes a deadline.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	return s.setDeadline(t, func(x *extras) *Timer { return &x.write }, func(s *Stream) {
		if !s.core.WriteEnded() {
			s.resetLocked(InternalError, os.ErrDeadlineExceeded)
			s.conn.flushSoonLocked()
		}
	})
}

// setDeadline calls passed, with conn.mu held, at t.
func (s *Stream) setDeadline(t time.Time, which func(*extras) *Timer, passed func(*Stream)) error {
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
	timer := which(x)
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
	set = c.below.afterFunc(d, func() {
		c.mu.Lock()
		defer c.unlock()
		if *timer == set && x.stream.stage != served { // else another was set meanwhile
			passed(x.stream)
		}
	})
	*timer = set
	return nil
}

var (
	_ io.Reader = (*Stream)(nil)
	_ io.Writer = (*Stream)(nil)
)
