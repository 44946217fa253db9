package streams

import (
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
)

// Conn is a connection of HTTP/2, as its calls and the pool see it.
type Conn struct {
	h2 *h2.Conn   // immutable once it is attached
	pc *pool.Conn // immutable

	used   atomic.Bool  // a call has got it
	opened atomic.Bool  // a call has opened a stream
	idled  atomic.Int64 // when its last stream ended, in ns
	active bool         // owned by state: it has streams
}

// Attach starts HTTP/2 on a new connection. If that fails, Attach closes the connection.
func Attach(client *h2.Client, pc *pool.Conn) error {
	c := &Conn{pc: pc}
	c.idled.Store(time.Now().UnixNano())
	pc.SetIdle(true)
	var err error
	if c.h2, err = client.Attach(pc.Link.Shown(), c); err != nil {
		pc.SetIdle(false)
		pc.Close()
		return err
	}
	pc.Streams = c.h2
	return nil
}

// Of returns the Conn of a connection that Attach was called with, or nil.
func Of(pc *pool.Conn) *Conn {
	if c, ok := pc.Streams.(*h2.Conn); ok {
		return c.User().(*Conn)
	}
	return nil
}

// Take is for a call that has got the connection. It reports whether another call had it before and, if
// asked, since when it was without streams.
func (c *Conn) Take(asked bool) (reused bool, idle time.Time) {
	if reused = c.used.Swap(true); reused && asked && c.h2.Streams() == 0 {
		idle = time.Unix(0, c.idled.Load())
	}
	return reused, idle
}

// state tells the pool what becomes of a connection. It is called for one change at a time.
func state(streams *h2.Conn, s h2.ConnState) {
	c := streams.User().(*Conn)
	switch s {
	case h2.Active:
		c.active = true
		c.pc.SetIdle(false)
	case h2.Idle:
		c.active = false
		c.idled.Store(time.Now().UnixNano())
		c.pc.SetIdle(true)
	case h2.Roomy:
		c.pc.Roomy()
	case h2.Leaving:
		c.pc.Leave()
	case h2.Closed:
		if !c.active {
			c.pc.SetIdle(false)
		}
		c.pc.Ended()
	}
}

// never is for time limits that net/http doesn't have.
const never = 365 * 24 * time.Hour

// pingTimeout is net/http's default.
const pingTimeout = 15 * time.Second

// Windows, unless the base has others. Unread answers of a connection take up to connWindow, each of
// them up to streamWindow, so even many unread ones leave room for others.
const (
	streamWindow = 1 << 20
	connWindow   = 64 << 20
)

// NewClient returns the client for Attach, with the settings of base, and of user instead of base.HTTP2.
func NewClient(base *http.Transport, user *http.HTTP2Config) *h2.Client {
	config := h2.ClientConfig{
		StreamWindow: streamWindow, ConnWindow: connWindow,
		BeginTimeout: never, WriteTimeout: -1,
		IdleTimeout: base.IdleConnTimeout,
		PingResets:  !base.DisableKeepAlives,
		Reserve:     true,
		State:       state,
	}
	most := request.MaxHeaderBytes(base)
	if base.MaxResponseHeaderBytes > 0 {
		most += 10 * 32 // as net/http: HTTP/2 counts 32 bytes more for each field
	}
	config.HeaderBytes = int(min(most, math.MaxInt32))
	config.HeaderFields = config.HeaderBytes/32 + 1 // each takes at least as many
	if user == nil {
		return h2.NewClient(config)
	}
	set(&config.DecoderTableBytes, user.MaxDecoderHeaderTableSize, 1)
	set(&config.EncoderTableBytes, user.MaxEncoderHeaderTableSize, 1)
	set(&config.FrameBytes, user.MaxReadFrameSize, 16<<10)
	set(&config.ConnWindow, user.MaxReceiveBufferPerConnection, 64<<10-1)
	set(&config.StreamWindow, user.MaxReceiveBufferPerStream, 1)
	if user.SendPingTimeout > 0 {
		config.PingAfter, config.PingIdle = min(user.SendPingTimeout, never), true
		config.PingTimeout = pingTimeout
		if user.PingTimeout > 0 {
			config.PingTimeout = min(user.PingTimeout, never)
		}
		config.BeginTimeout = config.PingAfter + config.PingTimeout // before its SETTINGS no server gets a PING
	}
	if user.WriteByteTimeout > 0 {
		config.WriteTimeout = user.WriteByteTimeout
	}
	return h2.NewClient(config)
}

// set sets a field of the configuration to the user's value, unless that is not valid.
func set(field *int, value, least int) {
	if value >= least && value <= math.MaxInt32 {
		*field = value
	}
}
