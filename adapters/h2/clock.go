package h2

import (
	"errors"
	"math/rand/v2"
	"time"
)

// clock has the times of a connection. One alarm serves all of them: the read deadline of the
// connection below. It is an entry of the loop's wheel, and wakes a connection that waits.
//
//	since      limit          what is due
//	quietAt    BeginTimeout   fail, unless the client's SETTINGS have come; heardAt, if the peer is a server
//	quietAt    restTime       rest: the memory of a busy connection goes
//	quietAt    IdleTimeout    Drain, unless a client has reserved a stream
//	heardAt    PingAfter      PING
//	pingedAt   PingTimeout    fail
//	drainedAt  DrainTime      GOAWAY that says which stream is the last
//	agedAt     none           Drain: it has reached its greatest age
//	goesAt     none           hang up, after a GOAWAY that says which stream is the last
//	hungUpAt   lingerTime     fail; after WriteTimeout if the client had stopped taking anything
//	cutAt      lingerTime     fail: nothing can be sent any more, and what was left to read is read
//
// The alarm may go off before anything is due, and is set again then. So a busy connection sets it once
// a second at most.
type clock struct {
	// guarded by mu
	alarmAt  int64   // 0: not set
	quietAt  int64   // since when there is no stream; 0: there is one
	pingedAt int64   // when a PING was sent that is not answered; 0: none
	heardAt  int64   // when bytes have come last
	ends     *ending // nil: all zero
}

// ending has the times of a connection's end, and what else few connections have.
type ending struct {
	goneAway  *[2]GoAway    // of a client: the server's first, and last; nil: there was none
	pingAfter time.Duration // in the place of Config.PingAfter; 0: it is that

	drainedAt int64 // when Drain was called; 0: it wasn't, or its second step was made
	agedAt    int64 // when it reaches its greatest age; 0: never, or it has
	goesAt    int64 // when it is closed after that; 0: never
	hungUpAt  int64 // since when the phase is hanging or lingering; 0: it isn't
	cutAt     int64 // since when nothing can be sent, of a client; 0: something can
	cut       error // why
	abrupt    bool  // it is closed as soon as the output is sent
	hungUp    bool  // of a client: the server has, which the reader is about to find out
	hurried   bool  // another client waits for its place: see hurryTime
	stalled   bool  // the client has stopped taking anything: see patience.go

	// Of a client with PingResets:
	resets int  // streams that were reset since the PING that is to be answered; 0: none is
	ponged bool // it was answered, and no stream has got anything since
}

func (k *clock) ending() ending {
	if k.ends == nil {
		return ending{}
	}
	return *k.ends
}

// makeEnding returns ends, after making it if it is nil.
func (k *clock) makeEnding() *ending {
	if k.ends == nil {
		k.ends = new(ending)
	}
	return k.ends
}

const (
	restTime   = time.Second
	lingerTime = time.Second // net/http's goAwayTimeout

	// hurryTime replaces Config.DrainTime and lingerTime when another client waits for this connection's
	// place. The client of this one has got the first GOAWAY by then, and can repeat elsewhere what the
	// server hasn't seen.
	hurryTime = 250 * time.Millisecond
)

// timesLocked calls do for each event that may come next, in no order, with its time and the method
// that handles it.
func (c *Conn) timesLocked(do func(at int64, how func(*Conn))) {
	cfg := &c.server.config
	after := func(since int64, d time.Duration, how func(*Conn)) {
		if since != 0 && d > 0 {
			do(since+int64(d), how)
		}
	}
	end := c.clock.ending()
	drainTime, lingerTime := cfg.DrainTime, lingerTime
	if end.hurried {
		drainTime, lingerTime = hurryTime, hurryTime
	}
	switch c.phase {
	case closed:
		return
	case hanging, lingering:
		if end.stalled && c.phase == hanging {
			lingerTime = cfg.WriteTimeout
		}
		after(end.hungUpAt, lingerTime, (*Conn).giveUpLocked)
		return
	}
	after(end.cutAt, lingerTime, (*Conn).giveUpLocked)
	after(end.drainedAt, drainTime, (*Conn).leaveLocked)
	if !c.core.Settled() {
		since := c.clock.quietAt
		if c.server.client {
			since = c.clock.heardAt // it may have opened streams before
		}
		after(since, cfg.BeginTimeout, (*Conn).notBegunLocked)
		return
	}
	after(end.agedAt, 1, (*Conn).agedLocked)
	after(end.goesAt, 1, (*Conn).tooOldLocked)
	if !c.rested {
		after(c.clock.quietAt, restTime, (*Conn).restLocked)
	}
	if c.parting == 0 && c.reservedLocked() == 0 {
		after(c.clock.quietAt, cfg.IdleTimeout, (*Conn).idledLocked)
	}
	if c.clock.pingedAt != 0 {
		after(c.clock.pingedAt, cfg.PingTimeout, (*Conn).noPongLocked)
	} else if cfg.pingIdle || c.clock.quietAt == 0 {
		after(c.clock.heardAt, c.pingAfterLocked(), (*Conn).checkAliveLocked)
	}
}

// setAlarmLocked sets the alarm to the time of the first event, unless it goes off before that anyway.
func (c *Conn) setAlarmLocked() {
	first := int64(0)
	c.timesLocked(func(at int64, _ func(*Conn)) {
		if first == 0 || at < first {
			first = at
		}
	})
	if first == 0 || c.clock.alarmAt != 0 && c.clock.alarmAt <= first {
		return
	}
	c.clock.alarmAt = first
	_ = c.below.nc.SetReadDeadline(c.below.timeOf(first))
}

// alarm handles the events that are due, and sets the alarm again.
func (c *Conn) alarm() {
	c.mu.Lock()
	defer c.unlock()
	now := c.below.now()
	for due := c.dueLocked(now); due != nil; due = c.dueLocked(now) {
		due(c)
	}
	c.clock.alarmAt = 0
	_ = c.below.nc.SetReadDeadline(time.Time{})
	c.setAlarmLocked()
	c.flushSoonLocked()
}

// dueLocked returns the method for an event that is due, or nil.
func (c *Conn) dueLocked(now int64) (due func(*Conn)) {
	c.timesLocked(func(at int64, how func(*Conn)) {
		if at <= now {
			due = how
		}
	})
	return due
}

// Our PINGs. Drain's has bytes of its own: one that was sent before it may be answered by a client that
// doesn't know of it yet.
var (
	alivePing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 0}
	drainPing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 1}
	resetPing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 2}
)

// checkAliveLocked is for a client that has sent nothing for PingAfter.
func (c *Conn) checkAliveLocked() { c.pingLocked(alivePing) }

func (c *Conn) pingLocked(data [8]byte) {
	c.clock.pingedAt = c.below.now()
	c.lendLocked()
	c.core.Ping(data)
}

// pongLocked is for the answer to a PING of ours. The answer to Drain's PING comes behind all that the
// client had sent before it knew of the drain.
func (c *Conn) pongLocked(data [8]byte) {
	if end := c.clock.ends; end != nil && end.resets > 0 {
		end.resets, end.ponged = 0, true // any answer shows that the server is there
	}
	switch data {
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

// agedLocked is for a connection that has reached its greatest age.
func (c *Conn) agedLocked() {
	end := c.clock.makeEnding()
	end.agedAt = 0
	if d := c.server.config.AgeGrace; d > 0 {
		end.goesAt = c.below.now() + int64(d)
	}
	c.drainLocked(aged)
}

// idledLocked is for a connection that has had no stream for IdleTimeout. A stream that the client
// opens at this moment is served.
func (c *Conn) idledLocked() {
	c.clock.quietAt = 0
	c.drainLocked(idled)
}

// tooOldLocked ends a connection whose streams haven't ended within AgeGrace, after it has sent the
// output. If the grace is very short the first GOAWAY is still in there, and without it the client
// wouldn't know why its streams end.
func (c *Conn) tooOldLocked() {
	if c.clock.ending().drainedAt != 0 {
		c.leaveLocked()
	}
	if c.phase == alive {
		c.hangUpLocked(&ConnError{Code: NoError, Err: errTooOld})
	}
}

// maxAge returns the age at which a connection is drained, which differs by up to a tenth.
func maxAge(age time.Duration) time.Duration { return age - age/10 + rand.N(age/5+1) }

// restLocked frees what only a busy connection needs. It is for the reader.
func (c *Conn) restLocked() {
	c.rested = true
	c.core.Rest()
	c.restTakingLocked()
}

var errTooOld = errors.New("the connection has become too old")

// errTimeout is a net.Error.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string   { return "the peer has not answered in time" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func (c *Conn) giveUpLocked() {
	reason := c.cutLocked()
	if reason == nil {
		reason = errTimeout
	}
	c.failLocked(NoError, reason)
}

// notBegunLocked is for a client that has not sent its SETTINGS in time.
func (c *Conn) notBegunLocked() {
	c.countTimeout(timeoutBegin)
	c.giveUpLocked()
}

// noPongLocked is for a client that has not answered our PING in time.
func (c *Conn) noPongLocked() {
	c.countTimeout(timeoutPing)
	c.giveUpLocked()
}

func (c *Conn) countTimeout(kind timeout) {
	c.workers.counts.Add(countTimeouts+counter(kind), 1)
}

// quietLocked notes that the last stream was served.
func (c *Conn) quietLocked() {
	c.workers.counts.Add(countActive, -1)
	c.clock.quietAt = c.below.now()
	c.rested = false
	c.idleLocked()
	if at := c.clock.alarmAt; at == 0 || at > c.clock.quietAt+int64(c.server.soonest) {
		c.setAlarmLocked()
	}
}

// idleLocked reports that the connection is idle, if it is: the program may close it then. So the resets
// that wait go before.
func (c *Conn) idleLocked() {
	if c.open == 0 && c.parting == 0 {
		c.changedLocked(Idle)
	}
}
