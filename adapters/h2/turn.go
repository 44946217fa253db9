package h2

import (
	"errors"
	"io"
	"os"
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
		if s := takeTurn(it.c).run(); s != nil {
			s.run(false) // here and not in turn, whose frame would stay below a handler that waits
		}
	case itemStream:
		it.s.run(false)
	case itemFlush:
		it.c.mu.Lock()
		it.c.flushQueued = false
		it.c.flushLocked()
		it.c.unlock()
	case itemTaking:
		it.c.checkTaking()
	case itemResume:
		it.s.run(true)
	}
}

// look visits the loop of the connection, for a worker that has nothing else to do.
func (it item) look(linger bool) {
	if pc := it.c.below.pc; pc != nil {
		serving.Look(pc, linger)
	}
}

// lookBriefly is look for a client, which doesn't linger: servers seldom answer that soon, and its
// callers need the processor.
func (it item) lookBriefly(linger bool) {
	if !linger {
		it.look(false)
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
	c       *Conn
	buf     [turnBytes]byte
	frame   http2.Frame
	event   http2.Event
	request Request
	batch   []*Stream // that were opened, and are to be served
	wakes   []*cond   // of goroutines that wait for what was applied
	woke    bool      // one of them was woken
}

const (
	turnBytes     = 32 << 10
	turnBytesMost = 256 << 10 // that are read before other connections have their turn
	framesMost    = 32        // that are applied before others have the connection's lock
)

var turns = sync.Pool{New: func() any { return new(turn) }}

// takeTurn returns the memory for a turn with the connection.
func takeTurn(c *Conn) *turn {
	t := turns.Get().(*turn)
	t.c = c
	return t
}

func (t *turn) release() {
	t.c = nil
	t.forget()
	t.woke = false
	turns.Put(t)
}

// forget lets the garbage collector have what the last frames were about.
func (t *turn) forget() {
	clear(t.batch)
	t.batch = t.batch[:0]
	t.event, t.request = http2.Event{}, Request{}
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

// start makes the connection the server's. unread was read from it before.
func (c *Conn) start(unread []byte) {
	c.mu.Lock()
	c.clock.quietAt = c.below.now()
	c.clock.heardAt = c.clock.quietAt
	if age := c.server.config.MaxAge; age > 0 {
		c.clock.makeEnding().agedAt = c.clock.quietAt + int64(maxAge(age))
	}
	c.setAlarmLocked()
	c.unlock()
	switch {
	case c.below.pc == nil:
		go takeTurn(c).readLoop(unread)
	case len(unread) > 0 || c.below.tls() != nil: // which may have more in its buffer
		c.unread = &unread
		c.awaken()
	default:
		c.arm()
	}
}

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

// run is a worker's turn with a connection on a loop. All that is there is read and applied, so
// that bodies are there, as far as they have come, before their handlers begin. Then the connection
// waits. Only after that does this worker call a handler, or send: a client may write without
// reading, and a handler may wait for what the client writes. run returns the stream whose handler
// this worker calls, or nil.
func (t *turn) run() (first *Stream) {
	c := t.c
	end := t.read()
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
	if first == nil && woke && c.waits() {
		c.mu.Unlock()
		c.workers.Yield() // the handler's answer goes along with what waits, as that to a PING
		c.mu.Lock()
	}
	if first == nil {
		c.flushLocked()
	} else if c.waits() {
		c.flushSoonLocked() // the handler may block
	}
	c.unlock()
	return first
}

// read reads what is there, and applies it.
func (t *turn) read() outcome {
	c := t.c
	if p := c.unread; p != nil {
		c.unread = nil
		t.receive(*p)
	}
	for n := 0; n < turnBytesMost; {
		m, dry, err := t.tryRead()
		n += m
		if m > 0 {
			t.receive(t.buf[:m])
		}
		switch {
		case isTimeout(err):
			c.alarm()
		case err != nil:
			t.gone(err)
			return over
		case dry:
			return waits
		}
		if c.now() != alive {
			return t.discard()
		}
	}
	return again
}

// tryRead reads what is there, without waiting: but crypto/tls may answer what it reads.
func (t *turn) tryRead() (n int, dry bool, err error) {
	c := t.c
	tc := c.below.tls()
	if tc == nil {
		return serving.TryRead(c.below.pc, nil, t.buf[:])
	}
	c.mu.Lock()
	c.beginWriteLocked()
	c.mu.Unlock()
	n, dry, err = serving.TryRead(c.below.pc, tc, t.buf[:])
	c.mu.Lock()
	c.taking.end()
	c.mu.Unlock()
	return n, dry, err
}

// readLoop reads from a connection that no loop watches.
func (t *turn) readLoop(unread []byte) {
	c := t.c
	t.receive(unread)
	for others := 0; ; { // timeouts in sequence that are not the alarm's
		t.queueBatch()
		n, err := c.below.nc.Read(t.buf[:])
		if n > 0 {
			t.receive(t.buf[:n])
		}
		switch {
		case err == nil:
			others = 0
		case isTimeout(err) && c.isAlarm():
			c.alarm()
		case isTimeout(err) && others == 0: // a deadline that was set before, which alarm removes
			others++
			c.alarm()
		default:
			t.gone(err)
			t.queueBatch()
			t.release()
			return
		}
	}
}

// queueBatch makes workers serve the streams that were opened, and send the output.
func (t *turn) queueBatch() {
	c := t.c
	for _, s := range t.batch {
		c.workers.Serve(item{c: c, s: s, kind: itemStream})
	}
	t.forget() // the next frame may be hours away
	c.mu.Lock()
	c.flushSoonLocked()
	c.unlock()
}

// now returns the phase, which others may change.
func (c *Conn) now() phase {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.phase
}

// discard reads what comes after the end.
func (t *turn) discard() outcome {
	c := t.c
	for c.discarded < serving.LingerBytes {
		m, dry, err := serving.TryRead(c.below.pc, nil, t.buf[:]) // the records of TLS are of no interest
		c.discarded += int32(m)
		switch {
		case isTimeout(err):
			if c.alarm(); c.now() == closed {
				return over
			}
		case err != nil:
			t.gone(err)
			return over
		case dry:
			return waits
		}
	}
	t.gone(errTooMuch)
	return over
}

var errTooMuch = errors.New("the client goes on sending")

// gone ends the connection, because nothing more can be read.
func (t *turn) gone(err error) {
	c := t.c
	c.mu.Lock()
	c.failLocked(NoError, err)
	c.unlock()
}

// receive finds the frames in p, and applies them.
func (t *turn) receive(p []byte) {
	c := t.c
	now := c.below.now()
	c.mu.Lock()
	c.core.Advance(time.Duration(now - c.clock.heardAt))
	c.clock.heardAt = now
	for n := 1; c.phase == alive && len(p) > 0; n++ {
		read, ok := c.core.Parse(p, &t.frame)
		if p = p[read:]; ok {
			t.applyLocked()
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
// next. It wakes once for all that was applied until then.
func (t *turn) wakeLater(s *Stream) {
	if at := s.cond; at != nil && !at.due.Load() {
		at.due.Store(true)
		t.wakes = append(t.wakes, at)
	}
}

func (t *turn) wake() {
	for i, at := range t.wakes {
		at.Broadcast()
		at.due.Store(false) // from here on the stream's memory may be used again
		t.wakes[i] = nil
		t.woke = true
	}
	t.wakes = t.wakes[:0]
}

// applyLocked applies a frame. It may release mu, to call code of the user's.
func (t *turn) applyLocked() {
	c, ev := t.c, &t.event
	began := c.core.Settled()
	if t.frame.IsPing() {
		c.lend() // gRPC's clients send one with most requests: the answers go together
	}
	if t.frame.IsMessage() {
		c.heard++
		if end := c.clock.ends; end != nil {
			end.ponged = false
		}
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
		h := t.accept()
		c.mu.Lock()
		if c.phase == alive {
			t.openLocked(h)
		}
	case http2.DataReceived:
		t.dataLocked(ev.Stream.User.(*Stream))
	case http2.TrailersEnded:
		s := ev.Stream.User.(*Stream)
		s.makeExtrasLocked().keepTrailers(ev.Fields)
		t.bodyEndedLocked(s)
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
		s.endLocked(&StreamError{ID: s.core.ID(), Code: ev.Code, Remote: !ev.Local, Err: c.server.config.ruleOf(ev)})
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
		t.pongLocked()
	case http2.PeerGoesAway:
		c.hangUpIfDoneLocked()
	case http2.ServerGoesAway:
		t.unservedLocked()
		c.hangUpIfDoneLocked()
	case http2.AnswerReceived:
		t.answerLocked(ev.Stream.User.(*Stream))
	}
	if err != nil {
		t.breachLocked(err)
	}
}

// pongLocked is for the answer to a PING of ours. The answer to Drain's PING comes behind all that the
// client had sent before it knew of the drain.
func (t *turn) pongLocked() {
	c := t.c
	if end := c.clock.ends; end != nil && end.resets > 0 {
		end.resets, end.ponged = 0, true // any answer shows that the server is there
	}
	switch [8]byte(t.event.Data) {
	case alivePing:
		if c.clock.ending().drainedAt == 0 { // or it isn't the last one
			c.clock.pingedAt = 0
			c.setAlarmLocked() // the next PING may be due before PingTimeout has passed
		}
	case drainPing:
		c.clock.pingedAt = 0
		if c.clock.ending().drainedAt != 0 {
			c.leaveLocked()
		}
	}
}

// accept calls the server's handler, and returns what serves a request, or nil to refuse it.
func (t *turn) accept() (h StreamHandler) {
	c, ev, r := t.c, &t.event, &t.request
	from := ev.Request
	*r = Request{
		Method: from.Method, Scheme: from.Scheme, Authority: from.Authority, Path: from.Path, Protocol: from.Protocol,
		HasAuthority: from.HasAuthority(), BadTarget: from.BadTarget,
		ContentLength: from.ContentLength, Problem: from.Problem, Fields: ev.Fields, End: ev.End,
	}
	c.guard(func() { h = c.server.handler.Accept(c, r) })
	return h
}

// openLocked opens the stream of a request.
func (t *turn) openLocked(h StreamHandler) {
	c, ev := t.c, &t.event
	if t.request.Problem == TooLarge {
		c.workers.counts.Add(countLargeHeaders, 1)
	}
	switch code := h.(type) {
	case nil:
		t.refuse(RefusedStream)
		return
	case refusal:
		t.refuse(ErrCode(code))
		return
	}
	s := h.Stream()
	s.conn, s.handler, s.core.User = c, h, s
	ev.Request.ContentLength = t.request.ContentLength // Accept may have changed it
	c.core.Open(&s.core, ev)
	if ev.End {
		s.readErr = io.EOF
	} else if expectsContinue(ev.Fields) {
		s.marks |= expects
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

// expectsContinue reports whether the fields of a request ask for 100 Continue before its body.
func expectsContinue(fields []Field) bool {
	for i := range fields {
		if f := &fields[i]; f.Name.Key() == "Expect" && strings.EqualFold(f.Value, "100-continue") {
			return true
		}
	}
	return false
}

func (t *turn) refuse(code ErrCode) {
	t.c.workers.counts.Add(countRefused, 1)
	t.c.core.Refuse(&t.event, code)
}

// dataLocked takes bytes of the body, or its end.
func (t *turn) dataLocked(s *Stream) {
	c, ev := t.c, &t.event
	waits := false // for more than has come
	s.marks &^= expects
	switch p := ev.Data; {
	case len(p) == 0:
	case s.stage == served || s.err != nil || s.readErr != nil:
		c.core.Discarded(&s.core, len(p))
	default:
		if s.extras != nil && s.extras.filling.into != nil {
			f := &s.extras.filling
			n := f.take(p)
			c.core.Consumed(&s.core, n)
			p, waits = p[n:], f.least > 0
		}
		if len(p) == 0 {
			break
		}
		s.unread.put(p)
	}
	switch {
	case ev.End:
		t.bodyEndedLocked(s)
	case waits, s.extras != nil && s.extras.client.awaits(s.unread.bytes()):
		return
	}
	t.wakeLater(s)
}

// bodyEndedLocked notes that the client has sent all.
func (t *turn) bodyEndedLocked(s *Stream) {
	switch {
	case s.readErr != nil:
	case t.event.Short:
		s.readErr = ErrShortBody
	default:
		s.readErr = io.EOF
		t.wholeLocked(s)
	}
}

// wholeLocked looks whether a client's stream has ended well. Then nothing of it changes any more, and
// what has come belongs to the goroutine that holds reading: conn.mu, which all callers of a connection
// want, isn't needed to read it.
func (t *turn) wholeLocked(s *Stream) {
	if s.stage == served || s.err != nil || s.readErr != io.EOF || !s.core.Ended() {
		return
	}
	if x := s.extras; x != nil && x.client != nil && x.client.answer.Status != 0 && !x.client.late {
		x.stop()
		t.wakeLater(s) // before, for Release
		s.whole.Store(true)
	}
}

// answerLocked takes the header of an answer.
func (t *turn) answerLocked(s *Stream) {
	c, ev := t.c, &t.event
	p := s.extras.client
	if ev.Status < 200 {
		if f := p.interim; f != nil {
			c.unlock()
			c.guard(func() { f(ev.Status, ev.Fields) })
			c.mu.Lock()
			return
		}
		for i := range ev.Fields {
			p.ignored += ev.Fields[i].Size()
		}
		if p.ignored > c.server.limits.HeaderListBytes {
			s.resetLocked(ProtocolError, errInterims)
			c.flushSoonLocked()
		}
		return
	}
	c.answered = true
	p.answer = Answer{Status: ev.Status, Fields: p.keep(ev.Fields), End: ev.End}
	if ev.End {
		t.bodyEndedLocked(s)
	}
	if ev.End || p.awaited == 0 {
		t.wakeLater(s)
	}
}

// errInterims is for a server that sends so many interim answers that they are longer than a header may
// be. The words are net/http's.
var errInterims = errors.New("header list too large")

// unservedLocked ends the streams that the server's GOAWAY leaves out.
func (t *turn) unservedLocked() {
	c, ev := t.c, &t.event
	c.clock.makeEnding().noteGoAway(ev)
	c.changedLocked(Leaving)
	c.core.EndUnserved(ev.ID, func(st *http2.Stream) {
		s := st.User.(*Stream)
		s.endLocked(&StreamError{ID: st.ID(), Code: RefusedStream, Remote: true, Err: ErrUnserved})
	})
}

// breachLocked ends the connection because of an error of the core.
func (t *turn) breachLocked(err error) {
	c := t.c
	var breach *http2.ConnError
	if !errors.As(err, &breach) || breach.Limit == http2.NoLimit {
		c.workers.counts.Add(countBreaches, 1)
	} else {
		c.workers.counts.Add(countAttacks+counter(breach.Limit-1), 1)
	}
	if breach == nil || breach.Silent {
		c.failLocked(ProtocolError, err)
		return
	}
	if c.phase == alive {
		c.hangUpLocked(&ConnError{Code: breach.Code, Err: errors.New(breach.Reason)})
	}
}
