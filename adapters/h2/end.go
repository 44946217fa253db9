package h2

import (
	"errors"
	"net"

	"github.com/percore/percore/internal/http2"
)

// drainLocked is the first step of a graceful end. The second step is leaveLocked, when the client
// has answered a PING, or after a second. All streams that it opened before it knew have arrived by
// that time. A client that has sent nothing yet may be about to, so it is told in the same way.
func (c *Conn) drainLocked(why farewell) {
	if c.phase != alive || c.core.Leaving() || c.clock.ending().drainedAt != 0 {
		return
	}
	if c.server.client { // it knows which stream is its last
		c.leaveLocked()
		return
	}
	c.noteDrainingLocked()
	c.lendLocked()
	if c.server.config.Explain {
		c.farewell = why
	}
	c.core.Drain(farewells[c.farewell])
	c.clock.makeEnding().drainedAt = c.below.now()
	c.pingLocked(drainPing)
	c.setAlarmLocked()
}

// A farewell is why a connection is drained, for the debug data of its GOAWAYs.
type farewell uint8

const (
	untold farewell = iota
	idled
	aged
	shutDown
)

// farewells are grpc-go's words.
var farewells = [...]string{untold: "", idled: "max_idle", aged: "max_age", shutDown: "graceful_stop"}

// leaveLocked tells the client which stream is the last, and hangs up when it is served.
func (c *Conn) leaveLocked() {
	c.noteDrainingLocked()
	c.clock.makeEnding().drainedAt = 0
	c.clock.quietAt = 0
	c.lendLocked()
	c.core.GoAway(http2.NoError, farewells[c.farewell])
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
		c.hangUpLocked(&ConnError{Code: NoError, Err: c.server.errClosed()})
	}
}

// errClosed is why a connection has ended that was to end.
func (s *Server) errClosed() error {
	if s.client {
		return errClientClosed
	}
	return ErrServerClosed
}

// hangUpLocked ends the connection when its output is sent.
func (c *Conn) hangUpLocked(err *ConnError) {
	c.phase, c.err = hanging, err
	if c.server.client {
		c.changedLocked(Leaving)
	}
	c.clock.makeEnding().hungUpAt = c.below.now()
	c.endStreamsLocked(err)
	c.resetAnsweredLocked()
	c.setAlarmLocked()
	c.flushSoonLocked()
}

// Abort ends the connection with a GOAWAY. Streams that are open end. debug goes with the GOAWAY: it
// is for humans, or for a client that knows the text. A client's connection is closed as soon as that
// is sent, or after a second.
func (c *Conn) Abort(code ErrCode, debug string) {
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.phase != alive:
	case !c.core.Settled():
		c.failLocked(code, errors.New(debug))
	default:
		c.clock.makeEnding().abrupt = c.server.client
		c.lendLocked()
		c.core.GoAway(code, debug)
		c.hangUpLocked(&ConnError{Code: code, Err: errors.New(debug)})
		if c.server.client && c.hasRoomLocked() { // else hangUpLocked's worker sends it
			c.flushLocked(nil)
		}
	}
}

// closeLocked closes a server's connection. One with streams that are answered, though their requests go
// on, hangs up: hangUpLocked resets them, and a close at once could take that away from the client.
func (c *Conn) closeLocked() {
	switch {
	case c.phase == alive && (c.parting > 0 || c.core.Answered() > 0):
		c.hangUpLocked(&ConnError{Code: NoError, Err: net.ErrClosed})
	case c.err == nil || c.err.Err != net.ErrClosed: // else it has hung up here; errClosed wraps it
		c.failLocked(NoError, net.ErrClosed)
	}
}

// sentLocked is for a connection whose output was sent.
func (c *Conn) sentLocked() {
	if c.phase != hanging {
		c.idleLocked()
		return
	}
	if c.clock.ending().abrupt {
		c.failLocked(NoError, net.ErrClosed)
		return
	}
	c.phase = lingering
	c.calls.closeWrite = true
	if end := c.clock.ends; end.stalled {
		end.hungUpAt = c.below.now()
		c.setAlarmLocked()
	}
}

// failLocked ends the connection at once.
func (c *Conn) failLocked(code ErrCode, reason error) {
	if c.phase == closed {
		return
	}
	if c.err == nil {
		c.err = &ConnError{Code: code, Err: reason}
	}
	c.phase = closed
	if c.draining {
		c.workers.counts.Add(countDraining, -1)
	}
	c.endStreamsLocked(c.err)
	c.stopTakingLocked()
	c.calls.close = true
	c.changedLocked(Closed)
	if !c.flushing {
		c.dropOutputLocked()
	}
}

// breachLocked ends the connection because of an error of the core.
func (c *Conn) breachLocked(err error) {
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

// endStreamsLocked ends all streams, because the connection does.
func (c *Conn) endStreamsLocked(err error) {
	c.core.Each(func(st *http2.Stream) { st.User.(*Stream).endLocked(err) })
	for c.core.Senders() > 0 {
		c.core.Sender().User.(*Stream).endLocked(err) // one that waits for room
	}
}
