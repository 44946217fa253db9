package h2

import (
	"errors"
	"math/rand/v2"
	"time"
)

// clock has the times of a connection. One alarm serves all of them: the read deadline of the
// connection below. It is an entry in the loop's wheel, and wakes a waiting connection.
//
//	since      limit          what is due
//	quietAt    BeginTimeout   fail, unless the peer's SETTINGS have come; or since heardAt, if a stream is open
//	quietAt    restTime       the memory of a busy connection goes
//	quietAt    IdleTimeout    Drain, unless a client has reserved a stream
//	heardAt    PingAfter      PING
//	pingedAt   PingTimeout    fail
//	drainedAt  DrainTime      GOAWAY that says which stream is the last
//	agedAt     none           Drain: it has reached its greatest age
//	goesAt     none           hang up, after a GOAWAY that says which stream is the last
//	hungUpAt   lingerTime     fail; after WriteTimeout if the client had stopped taking anything
//	cutAt      lingerTime     fail: nothing can be sent any more, and what was left to read is read
//
// The alarm may go off before anything is due, and is then set again. So a busy connection sets it at
// most once a second.
type clock struct {
	// guarded by mu
	alarmAt  int64   // 0: not set
	quietAt  int64   // since when there is no stream; 0: there is one
	pingedAt int64   // when a PING was sent that is not answered; 0: none
	heardAt  int64   // when bytes last came
	ends     *ending // see makeEnding
}

const (
	restTime   = time.Second
	lingerTime = time.Second // net/http's goAwayTimeout

	// hurryTime replaces Config.DrainTime and lingerTime when another client waits for this connection's
	// place. By then this connection's client has got the first GOAWAY, and can repeat elsewhere what the
	// server hasn't seen.
	hurryTime = 250 * time.Millisecond
)

// A due is something that a connection's times are for.
type due uint8

const (
	nothing  due = iota
	givesUp      // nothing has come for too long
	leaves       // the second step of Drain
	notBegun     // the peer has not sent its SETTINGS in time
	agedOut      // it has reached its greatest age
	tooOld       // its streams haven't ended within AgeGrace
	rests        // it is quiet
	isIdle       // it has had no stream for IdleTimeout
	noPong       // the peer has not answered our PING in time
	silent       // the peer has sent nothing for PingAfter
)

// nextLocked returns what comes next, and when; 0 for never.
func (c *Conn) nextLocked() (first int64, what due) {
	cfg := &c.config
	after := func(since int64, d time.Duration, next due) {
		if at := since + int64(d); since != 0 && d > 0 && (first == 0 || at < first) {
			first, what = at, next
		}
	}
	end := c.clock.ends
	drainTime, lingerTime := cfg.DrainTime, lingerTime
	if end.hurried {
		drainTime, lingerTime = hurryTime, hurryTime
	}
	switch c.phase {
	case closed:
		return 0, nothing
	case hanging, lingering:
		if end.stalled && c.phase == hanging {
			lingerTime = cfg.WriteTimeout
		}
		after(end.hungUpAt, lingerTime, givesUp)
		return first, what
	}
	after(end.cutAt, lingerTime, givesUp)
	after(end.drainedAt, drainTime, leaves)
	if !c.core.Settled() {
		since := c.clock.heardAt // a client may have opened streams before
		if at := c.clock.quietAt; at != 0 {
			since = min(since, at)
		}
		after(since, cfg.BeginTimeout, notBegun)
		return first, what
	}
	after(end.agedAt, 1, agedOut)
	after(end.goesAt, 1, tooOld)
	if !c.rested {
		after(c.clock.quietAt, restTime, rests)
	}
	if c.parting == 0 && c.waiting.reserved == 0 {
		after(c.clock.quietAt, cfg.IdleTimeout, isIdle)
	}
	if c.clock.pingedAt != 0 {
		after(c.clock.pingedAt, cfg.PingTimeout, noPong)
	} else if cfg.pingIdle || c.clock.quietAt == 0 {
		after(c.clock.heardAt, end.pingAfterOr(cfg.PingAfter), silent)
	}
	return first, what
}

// setAlarmLocked sets the alarm to the time of the first event, unless it goes off before that anyway.
func (c *Conn) setAlarmLocked() {
	first, _ := c.nextLocked()
	if first == 0 || c.clock.alarmAt != 0 && c.clock.alarmAt <= first {
		return
	}
	c.clock.alarmAt = first
	c.below.SetReadDeadline(first)
}

// isAlarm reports whether a read deadline that has passed was the alarm. It may also be a deadline
// that was set below nc, and stays.
func (c *Conn) isAlarm() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock.alarmAt != 0 && c.clock.alarmAt <= c.below.Now()+int64(time.Second)
}

// alarm handles what is due, and sets the alarm again.
func (c *Conn) alarm() {
	c.mu.Lock()
	defer c.unlock()
	now := c.below.Now()
	for at, what := c.nextLocked(); what != nothing && at <= now; at, what = c.nextLocked() {
		c.dueLocked(what)
	}
	c.clock.alarmAt = 0
	c.below.SetReadDeadline(0)
	c.setAlarmLocked()
	c.flushSoonLocked()
}

// dueLocked does what is due. It is called by the reader.
func (c *Conn) dueLocked(what due) {
	switch what {
	case givesUp:
		c.giveUpLocked()
	case leaves:
		c.leaveLocked()
	case notBegun:
		c.workers.counts.Add(timeoutBegin, 1)
		c.giveUpLocked()
	case agedOut:
		end := c.clock.makeEnding()
		end.agedAt = 0
		if d := c.config.AgeGrace; d > 0 {
			end.goesAt = c.below.Now() + int64(d)
		}
		c.drainLocked(aged)
	case tooOld:
		// Send the output first: if the grace is very short, the first GOAWAY is still in there, and without
		// it the client wouldn't know why its streams end.
		if c.clock.ends.drainedAt != 0 {
			c.leaveLocked()
		}
		if c.phase == alive {
			c.hangUpLocked(&ConnError{Code: NoError, Err: errTooOld})
		}
	case rests: // the memory of a busy connection goes
		c.rested = true
		c.core.Rest()
		c.taking = c.taking.rest()
	case isIdle:
		c.clock.quietAt = 0
		c.drainLocked(idled) // a stream that the client opens at this moment is served
	case noPong:
		c.workers.counts.Add(timeoutPing, 1)
		c.giveUpLocked()
	case silent:
		c.pingLocked(alivePing)
	}
}

// Our PINGs. Drain's PING has bytes of its own: a client that doesn't know of the drain yet may still
// be answering an earlier one.
var (
	alivePing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 0}
	drainPing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 1}
	resetPing = [8]byte{'p', 'e', 'r', 'c', 'o', 'r', 'e', 2}
)

func (c *Conn) pingLocked(data [8]byte) {
	c.clock.pingedAt = c.below.Now()
	c.lend()
	c.core.Ping(data)
}

// begin sets the times of a new connection.
func (k *clock) begin(now int64, cfg *Config) {
	k.quietAt, k.heardAt = now, now
	if cfg.MaxAge > 0 {
		k.makeEnding().agedAt = now + int64(maxAge(cfg.MaxAge))
	}
}

// pongLocked handles the answer to one of our PINGs. The answer to Drain's PING comes after everything
// that the client had sent before it knew of the drain.
func (c *Conn) pongLocked(data [8]byte) {
	end := c.clock.ends
	if end.resets > 0 {
		end.resets, end.ponged = 0, true // any answer shows that the server is there
	}
	switch data {
	case alivePing:
		if end.drainedAt == 0 { // or it isn't the last one
			c.clock.pingedAt = 0
			c.setAlarmLocked() // the next PING may be due before PingTimeout has passed
		}
	case drainPing:
		c.clock.pingedAt = 0
		if end.drainedAt != 0 {
			c.leaveLocked()
		}
	}
}

// maxAge returns the age at which a connection is drained, which differs by up to a tenth.
func maxAge(age time.Duration) time.Duration { return age - age/10 + rand.N(age/5+1) }

var errTooOld = errors.New("the connection has become too old")

// errTimeout is a net.Error.
var errTimeout error = timeoutError{}

type timeoutError struct{}

func (timeoutError) Error() string   { return "the peer has not answered in time" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

func (c *Conn) giveUpLocked() {
	reason := c.clock.ends.cut
	if reason == nil {
		reason = errTimeout
	}
	c.failLocked(reason)
}

// openedLocked notes that a stream was opened, and reports whether it is the first after a quiet time.
func (c *Conn) openedLocked() (first bool) {
	c.workers.counts.Add(countStreams, 1)
	c.open++
	if c.open > 1 {
		return false
	}
	c.workers.counts.Add(countActive, 1)
	c.clock.quietAt = 0
	c.changedLocked(Active)
	return true
}

// quietLocked notes that the last stream was served.
func (c *Conn) quietLocked() {
	c.workers.counts.Add(countActive, -1)
	c.clock.quietAt = c.below.Now()
	c.rested = false
	c.idleLocked()
	soonest := restTime // what comes first on a quiet connection
	if d := c.config.IdleTimeout; d > 0 {
		soonest = min(d, restTime)
	}
	if at := c.clock.alarmAt; at == 0 || at > c.clock.quietAt+int64(soonest) {
		c.setAlarmLocked()
	}
}

// idleLocked reports that the connection is idle, if it is. The program may then close it, so waiting
// resets are sent first.
func (c *Conn) idleLocked() {
	if c.open == 0 && c.parting == 0 {
		c.changedLocked(Idle)
	}
}

// SetPingAfter changes PingAfter of [Config] or [ClientConfig] for one connection, starting with its
// next PING. It has no effect if d is not positive, or if the configuration has no PingAfter.
func (c *Conn) SetPingAfter(d time.Duration) {
	c.mu.Lock()
	defer c.unlock()
	end, byDefault := c.clock.makeEnding(), c.config.PingAfter
	if d > 0 && byDefault > 0 && d != end.pingAfterOr(byDefault) {
		end.pingAfter = d
		c.setAlarmLocked()
	}
}

// pingAfterOr returns the connection's PingAfter; d is the one in its configuration.
func (end *ending) pingAfterOr(d time.Duration) time.Duration {
	if end.pingAfter > 0 {
		return end.pingAfter
	}
	return d
}
