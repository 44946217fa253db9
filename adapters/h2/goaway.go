package h2

import (
	"time"

	"github.com/percore/percore/internal/http2"
)

// A GoAway is what a server has said in a GOAWAY (RFC 9113, section 6.8).
type GoAway struct {
	LastStream uint32 // streams with a higher number are not served
	Code       ErrCode
	Debug      string // its debug data
}

// noteGoAwayLocked keeps what the server's GOAWAYs say: the first reason, and the last stream of the
// last.
func (c *Conn) noteGoAwayLocked(ev *http2.Event) {
	end := c.clock.makeEnding()
	g := end.goneAway
	if g == nil {
		end.goneAway = &GoAway{ev.ID, ev.Code, string(ev.Data)}
		return
	}
	if g.LastStream = ev.ID; g.Code == NoError {
		g.Code = ev.Code
	}
}

// GoneAway returns what the server of a client's connection has said in its GOAWAY, or in several: the
// first reason, and the last stream of the last. ok is false if it has sent none.
func (c *Conn) GoneAway() (g GoAway, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	said := c.clock.ending().goneAway
	if said == nil {
		return GoAway{}, false
	}
	return *said, true
}

// SetPingAfter changes PingAfter of [Config] or [ClientConfig] for one connection, from its next PING
// on. It has no effect if d is not positive, or if the configuration has no PingAfter.
func (c *Conn) SetPingAfter(d time.Duration) {
	c.mu.Lock()
	defer c.unlock()
	if d > 0 && c.server.config.PingAfter > 0 && d != c.pingAfterLocked() {
		c.clock.makeEnding().pingAfter = d
		c.setAlarmLocked()
	}
}

func (c *Conn) pingAfterLocked() time.Duration {
	if d := c.clock.ending().pingAfter; d > 0 {
		return d
	}
	return c.server.config.PingAfter
}
