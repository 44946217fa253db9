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

// noteGoAwayLocked keeps the server's first GOAWAY, and its last one.
func (c *Conn) noteGoAwayLocked(ev *http2.Event) {
	end := c.clock.makeEnding()
	g := GoAway{ev.ID, ev.Code, string(ev.Data)}
	if end.goneAway == nil {
		end.goneAway = &[2]GoAway{g, g}
	} else {
		end.goneAway[1] = g
	}
}

// GoneAway returns the first GOAWAY that the server of a client's connection has sent, and the last one,
// by which fewer streams are served than by the first. ok is false if it has sent none.
func (c *Conn) GoneAway() (first, last GoAway, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.clock.ending().goneAway
	if g == nil {
		return GoAway{}, GoAway{}, false
	}
	return g[0], g[1], true
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
