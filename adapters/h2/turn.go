package h2

import (
	"errors"
	"sync"
	"time"

	"github.com/percore/percore/adapters/h2/internal/below"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

func (it item) work() {
	switch it.kind {
	case itemTurn:
		if s := takeTurn(it.c).run(); s != nil {
			item{c: it.c, s: s}.serve() // here and not in turn, whose frame would stay below a handler that waits
		}
	case itemStream, itemResume:
		it.serve()
	case itemFlush:
		it.c.mu.Lock()
		it.c.flushQueued = false
		it.c.flushLocked()
		it.c.unlock()
	case itemTaking:
		it.c.checkTaking()
	}
}

// look polls the connection's loop, for an idle worker.
func (it item) look(linger bool) {
	if pc := it.c.below.PC; pc != nil {
		serving.Look(pc, linger)
	}
}

// lookBriefly is look for a client, which doesn't linger: servers seldom answer that soon, and callers
// need the processor.
func (it item) lookBriefly(linger bool) {
	if !linger {
		it.look(false)
	}
}

// socket returns the connection's socket, if an idle worker should rather wait for that.
func (it item) socket() workers.Socket {
	if pc := it.c.below.PC; pc != nil {
		return serving.Socket(pc)
	}
	return nil
}

// turn is the memory that a worker needs for a connection's turn.
type turn struct {
	c     *Conn
	buf   [turnBytes]byte
	frame http2.Frame
	event http2.Event
	batch []*Stream // that were opened, and are to be served
	wakes           // of goroutines that wait for what was applied
}

const (
	turnBytes     = 32 << 10
	turnBytesMost = 256 << 10 // that are read before other connections have their turn
	framesMost    = 32        // that are applied before others have the connection's lock
)

var turns = sync.Pool{New: func() any { return new(turn) }}

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

// forget drops references to what the last frames were about, for the garbage collector.
func (t *turn) forget() {
	clear(t.batch)
	t.batch = t.batch[:0]
	t.event = http2.Event{}
}

// waker is a Conn as the engine's handler.
type waker Conn

// OnReadable is called when there is something to read, when the alarm's time has come, and when
// the connection was closed.
func (w *waker) OnReadable(error) { w.workers.Serve(item{c: (*Conn)(w)}) }

// OffLoop allows a worker that visits a loop to call OnReadable.
func (w *waker) OffLoop() {}

// start makes the connection the server's. unread was read from it before.
func (c *Conn) start(unread []byte) {
	c.mu.Lock()
	c.clock.begin(c.below.Now(), &c.config)
	c.setAlarmLocked()
	if c.handler == nil {
		c.flushSoonLocked() // a client's preface
	}
	c.unlock()
	switch {
	case c.below.PC == nil:
		go takeTurn(c).readLoop(unread)
	case len(unread) > 0 || c.below.TLS() != nil: // which may have more in its buffer
		c.unread = &unread
		c.workers.Serve(item{c: c})
	default:
		c.arm()
	}
}

// arm lets the connection wait. The caller gives the reader's part away.
func (c *Conn) arm() {
	if err := serving.Arm(c.below.PC, (*waker)(c)); err != nil {
		c.workers.Serve(item{c: c}) // closed, or the alarm's time has come
	}
}

// outcome is how a turn ends.
type outcome uint8

const (
	turnWaits outcome = iota // nothing is left to read: the engine tells of more
	turnAgain                // there may be more
	turnOver                 // the connection is closed
)

// run is a worker's turn with a connection on a loop. It reads and applies all that is there, so
// handlers find their bodies as far as they have come. Then the connection waits. Only after that this
// worker calls a handler, or sends: a client may write without reading, and a handler may wait for what
// the client writes. run returns the stream whose handler this worker calls, or nil.
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
	case turnWaits:
		c.arm()
	case turnAgain:
		c.workers.Serve(item{c: c})
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

// read reads what is there, and applies it. It discards what comes after the connection's end.
func (t *turn) read() outcome {
	c := t.c
	over := c.discarded > 0
	if p := c.unread; p != nil {
		c.unread = nil
		over = t.receive(*p)
	}
	for n := 0; n < turnBytesMost; {
		m, dry, err := t.tryRead(over)
		n += m
		switch {
		case over:
			c.discarded += int32(m)
		case m > 0:
			over = t.receive(t.buf[:m])
		}
		switch {
		case below.IsTimeout(err):
			c.alarm()
		case err != nil:
			t.gone(err)
			return turnOver
		case c.discarded >= serving.LingerBytes:
			t.gone(errTooMuch)
			return turnOver
		case dry:
			return turnWaits
		}
	}
	return turnAgain
}

// tryRead reads what is there, without waiting. crypto/tls may answer what it reads, and so write. When
// the connection is over, the records of TLS are of no interest.
func (t *turn) tryRead(over bool) (n int, dry bool, err error) {
	c := t.c
	tc := c.below.TLS()
	if tc == nil || over {
		return serving.TryRead(c.below.PC, nil, t.buf[:])
	}
	c.mu.Lock()
	c.beginWriteLocked()
	c.mu.Unlock()
	n, dry, err = serving.TryRead(c.below.PC, tc, t.buf[:])
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
		n, err := c.below.NC.Read(t.buf[:])
		if n > 0 {
			t.receive(t.buf[:n])
		}
		switch {
		case err == nil:
			others = 0
		case below.IsTimeout(err) && c.isAlarm():
			c.alarm()
		case below.IsTimeout(err) && others == 0: // a deadline that was set before, which alarm removes
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

var errTooMuch = errors.New("the client goes on sending")

// gone ends the connection, because nothing more can be read.
func (t *turn) gone(err error) {
	c := t.c
	c.mu.Lock()
	c.failLocked(err)
	c.unlock()
}

// receive finds the frames in p, and applies them. It reports whether the connection takes no more.
func (t *turn) receive(p []byte) (over bool) {
	c := t.c
	now := c.below.Now()
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
	over = c.phase != alive
	c.unlock()
	t.wake()
	return over
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
		if c.clock.ends.ponged {
			c.clock.ends.ponged = false
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
		if s := (serverSide{}).accept(c, ev); s != nil {
			t.batch = append(t.batch, s)
		}
	case http2.DataReceived:
		incoming{ev.Stream.User.(*Stream)}.dataLocked(ev, &t.wakes)
	case http2.TrailersEnded:
		incoming{ev.Stream.User.(*Stream)}.trailersLocked(ev, &t.wakes)
	case http2.StreamReset:
		ev.Stream.User.(*Stream).wasResetLocked(ev)
	case http2.StreamRefused:
		serverSide{}.refused(c)
	case http2.PingReceived:
		if c.pings != nil {
			answered := ev.Answered
			c.unlock()
			c.guard(func() { c.pings(c, answered) })
			c.mu.Lock()
		}
	case http2.PingAcked:
		c.pongLocked([8]byte(ev.Data))
	case http2.PeerGoesAway:
		c.hangUpIfDoneLocked()
	case http2.ServerGoesAway:
		c.clock.makeEnding().noteGoAway(c, ev)
		c.hangUpIfDoneLocked()
	case http2.AnswerReceived:
		incoming{ev.Stream.User.(*Stream)}.answerLocked(ev, &t.wakes)
	}
	if err != nil {
		c.breachLocked(err.(*http2.ConnError))
	}
}
