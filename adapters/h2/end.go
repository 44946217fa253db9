package h2

import (
	"errors"
	"net"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/seam"
)

// ending has the times of a connection's end, and other things that few connections have.
type ending struct {
	goneAway  *[2]GoAway    // of a client: the server's first, and last; nil: there was none
	pingAfter time.Duration // in the place of Config.PingAfter; 0: it is that
	farewell  string        // why it is drained, for the debug data of its GOAWAYs; empty without Config.Explain

	drainedAt int64 // when drainLocked was called; 0: it wasn't, or its second step was made
	agedAt    int64 // when it reaches its greatest age; 0: never, or it has
	goesAt    int64 // when it is closed after that; 0: never
	hungUpAt  int64 // since when the phase is hanging or lingering; 0: it isn't
	cutAt     int64 // since when nothing can be sent, of a client; 0: something can
	cut       error // why
	abrupt    bool  // it is closed as soon as the output is sent
	hungUp    bool  // of a client: the server has, which the reader is about to find out
	hurried   bool  // another client waits for its place: see hurryTime
	stalled   bool  // the client has stopped taking anything: see WriteTimeout in output.go

	// Of a client with PingResets:
	resets int  // streams that were reset since the PING that is to be answered; 0: none is
	ponged bool // it was answered, and no stream has got anything since
}

// noEnding is what most connections have. It never changes.
var noEnding ending

// makeEnding returns ends, to be changed.
func (k *clock) makeEnding() *ending {
	if k.ends == &noEnding {
		k.ends = new(ending)
	}
	return k.ends
}

// cutError is cut for users.
func (end *ending) cutError() error {
	if end.cut == nil {
		return nil
	}
	return &ConnError{Code: NoError, Err: end.cut}
}

// GoAway lets the connection end: a GOAWAY tells the client to open no more streams on it, the open
// streams are served, and then the connection is closed. On a client's connection, no more streams can
// be opened. GoAway does not wait for that.
func (c *Conn) GoAway() {
	c.mu.Lock()
	defer c.unlock()
	c.drainLocked(shutDown)
	c.flushSoonLocked()
}

// GoAwayIfIdle is GoAway for a connection that has no streams, not even a reserved one. It reports
// whether that was so.
func (c *Conn) GoAwayIfIdle() bool {
	c.mu.Lock()
	defer c.unlock()
	idle := c.open == 0 && c.waiting.reserved == 0
	if idle {
		c.drainLocked(shutDown)
		c.flushSoonLocked()
	}
	return idle
}

// drainLocked is the first step of a graceful end. The second step is leaveLocked, when the client has
// answered a PING, or after a second. By then all streams have arrived that it opened before it knew.
// A client that has sent nothing yet may be about to, so it is told in the same way.
func (c *Conn) drainLocked(why string) {
	if c.phase != alive || c.core.Leaving() || c.clock.ends.drainedAt != 0 {
		return
	}
	c.noteDrainingLocked()
	c.lend()
	end := c.clock.makeEnding()
	if c.config.Explain {
		end.farewell = why
	}
	if c.core.Drain(end.farewell); c.core.Leaving() { // a client, which knows which stream is its last
		c.leaveLocked()
		return
	}
	end.drainedAt = c.below.Now()
	c.pingLocked(drainPing)
	c.setAlarmLocked()
}

// Why a connection is drained, in grpc-go's words.
const (
	idled    = "max_idle"
	aged     = "max_age"
	shutDown = "graceful_stop"
)

// leaveLocked tells the client which stream is the last, and hangs up when that stream is served.
func (c *Conn) leaveLocked() {
	c.noteDrainingLocked()
	end := c.clock.makeEnding()
	end.drainedAt = 0
	c.clock.quietAt = 0
	c.lend()
	c.core.GoAway(http2.NoError, end.farewell)
	c.hangUpIfDoneLocked()
}

// noteDrainingLocked counts a connection as draining, until it is closed.
func (c *Conn) noteDrainingLocked() {
	if !c.draining {
		c.draining = true
		c.workers.counts.Add(countDraining, 1)
	}
}

// hangUpIfDoneLocked hangs up if the connection is leaving, and no stream is left.
func (c *Conn) hangUpIfDoneLocked() {
	if c.phase == alive && c.open == 0 && c.core.Leaving() && c.core.Streams() == 0 {
		c.hangUpLocked(&ConnError{Code: NoError, Err: c.errClosed})
	}
}

// hangUpLocked ends the connection when its output is sent.
func (c *Conn) hangUpLocked(err *ConnError) {
	c.phase, c.err = hanging, err
	c.clock.makeEnding().hungUpAt = c.below.Now()
	c.endStreamsLocked(err)
	c.side.hangUp(c)
	c.setAlarmLocked()
	c.flushSoonLocked()
}

// Abort ends the connection with a GOAWAY. Open streams end. debug is sent with the GOAWAY, for
// humans, or for a client that knows the text. A client's connection is closed as soon as the GOAWAY
// is sent, or after a second.
func (c *Conn) Abort(code ErrCode, debug string) {
	c.mu.Lock()
	defer c.unlock()
	c.side.close(c, &ConnError{Code: code, Err: errors.New(debug)})
}

// abortLocked hangs up with a GOAWAY, and reports whether it did.
func (c *Conn) abortLocked(why *ConnError) bool {
	switch {
	case c.phase != alive:
	case !c.core.Settled():
		c.failLocked(why)
	default:
		c.lend()
		c.core.GoAway(why.Code, why.Err.Error())
		c.hangUpLocked(why)
		return true
	}
	return false
}

// sentLocked is for a connection whose output was sent.
func (c *Conn) sentLocked() {
	if c.phase != hanging {
		c.idleLocked()
		return
	}
	if c.clock.ends.abrupt {
		c.failLocked(net.ErrClosed)
		return
	}
	c.phase = lingering
	c.calls.closeWrite = true
	if end := c.clock.ends; end.stalled {
		end.hungUpAt = c.below.Now()
		c.setAlarmLocked()
	}
}

// failLocked ends the connection at once. The reason may be a *ConnError; others have the code NoError.
func (c *Conn) failLocked(reason error) {
	if c.phase == closed {
		return
	}
	if c.err == nil {
		why, ok := reason.(*ConnError)
		if !ok {
			why = &ConnError{Code: NoError, Err: reason}
		}
		c.err = why
	}
	c.phase = closed
	if c.draining {
		c.workers.counts.Add(countDraining, -1)
	}
	c.endStreamsLocked(c.err)
	c.taking.stop()
	c.taking = nil
	c.calls.close = true
	c.changedLocked(Closed)
	if !c.flushing {
		c.drop()
	}
}

// breachLocked ends the connection because the peer has broken the protocol.
func (c *Conn) breachLocked(breach *http2.ConnError) {
	if breach.Limit == http2.NoLimit {
		c.workers.counts.Add(countBreaches, 1)
	} else {
		c.workers.counts.Add(countAttacks+counter(breach.Limit-1), 1)
	}
	switch {
	case breach.Silent:
		c.failLocked(&ConnError{Code: ProtocolError, Err: breach})
	case c.phase == alive:
		c.hangUpLocked(&ConnError{Code: breach.Code, Err: errors.New(breach.Reason)})
	}
}

// endStreamsLocked ends all streams, because the connection does.
func (c *Conn) endStreamsLocked(err error) {
	c.core.Each(func(st *http2.Stream) { st.User.(*Stream).endLocked(err) })
	for c.core.Senders() > 0 {
		c.core.Sender().User.(*Stream).endLocked(err) // one that waits for room
	}
}

// partTime is how long after its answer a stream is reset if its request goes on. curl drops an answer
// that it reads together with the reset (version 7.88). partMost is how many streams of a connection
// may wait for their reset; there is no need to keep more. A client that waits for 100 Continue is
// sending nothing, and is told at once: it must not give up waiting and send the body.
const (
	partTime = 100 * time.Millisecond
	partMost = 100
)

// partLocked ends a stream whose answer is complete, though its request is not. The client is told
// later, or when the connection ends, unless it has ended the stream itself. Until then the stream
// counts as open. It holds no body: further bytes are dropped.
func (s *Stream) partLocked() {
	c := s.conn
	if s.core.Ended() {
		return
	}
	n := s.unread.Drop()
	s.endLocked(&StreamError{ID: s.core.ID(), Code: NoError})
	if c.parting == partMost || s.marks.has(expects) {
		c.lend()
		c.core.Reset(&s.core, NoError)
		return
	}
	c.core.Discarded(&s.core, n)
	c.parting++
	c.below.AfterFunc(partTime, func() {
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

// A GoAway is what a server has said in a GOAWAY (RFC 9113, section 6.8).
type GoAway struct {
	LastStream uint32 // streams with a higher number are not served
	Code       ErrCode
	Debug      string // its debug data
}

// noteGoAway keeps the server's first GOAWAY, and its last one. It ends the streams that the server
// won't serve.
func (end *ending) noteGoAway(c *Conn, ev *http2.Event) {
	g := GoAway{ev.ID, ev.Code, string(ev.Data)}
	if end.goneAway == nil {
		end.goneAway = &[2]GoAway{g, g}
	} else {
		end.goneAway[1] = g
	}
	c.changedLocked(Leaving)
	c.core.EndUnserved(ev.ID, func(st *http2.Stream) {
		s := st.User.(*Stream)
		s.endLocked(&StreamError{ID: st.ID(), Code: RefusedStream, Remote: true, Err: ErrUnserved})
	})
}

// GoneAway returns the first and the last GOAWAY that the server has sent on a client's connection.
// The last one may serve fewer streams than the first. ok is false if there was no GOAWAY.
func (c *Conn) GoneAway() (first, last GoAway, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.clock.ends.goneAway
	if g == nil {
		return GoAway{}, GoAway{}, false
	}
	return g[0], g[1], true
}

// Err returns why the connection has ended, or is about to end: a [*ConnError], or nil.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		return nil
	}
	return c.err
}

// idleConn is a Conn as an [accepting.IdleConn].
type idleConn struct{ c *Conn }

// since returns since when the connection has had no stream, [accepting.Detached] if all its
// streams are that, or 0.
func (i idleConn) since() int64 {
	i.c.mu.Lock()
	defer i.c.mu.Unlock()
	return i.sinceLocked()
}

func (i idleConn) sinceLocked() int64 {
	c := i.c
	switch {
	case c.phase != alive, c.open > c.detached, c.clock.ends.drainedAt != 0:
		return 0
	case c.open > 0:
		return accepting.Detached
	}
	return c.clock.quietAt
}

// CloseIdle implements [accepting.IdleConn]. The client is told first, as with IdleTimeout, and a
// stream that it opens at this moment is served.
func (i idleConn) CloseIdle(since int64) bool {
	c := i.c
	if seam.HasUnread(c.below.PC) || !i.giveUp(since) {
		return false
	}
	go func() { // what is due may call the handler, and sending may block
		c.mu.Lock()
		defer c.unlock()
		c.flushSoonLocked()
	}()
	return true
}

// giveUp drains the connection if it has had no stream since then, or resets all its streams if they are
// detached. A later unlock makes the calls that become due.
func (i idleConn) giveUp(since int64) bool {
	c := i.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.sinceLocked() != since {
		return false
	}
	c.clock.makeEnding().hurried = true
	if since == accepting.Detached {
		c.core.Each(func(st *http2.Stream) { st.User.(*Stream).resetLocked(EnhanceYourCalm, accepting.ErrShare) })
		c.drainLocked("")
	} else {
		c.clock.quietAt = 0
		c.drainLocked(idled)
	}
	return true
}
