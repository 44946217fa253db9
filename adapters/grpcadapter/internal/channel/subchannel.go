package channel

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// A subchannel connects to one address.
//
//	state              left for
//	IDLE               CONNECTING: the leaf says so (connect)
//	CONNECTING         READY: Dial has returned a connection
//	                   IDLE: the same, but the connection takes no more calls already
//	                   TRANSIENT_FAILURE: Dial has returned an error
//	READY              IDLE: the connection takes no more calls
//	TRANSIENT_FAILURE  IDLE: the backoff has passed, or has been reset
//	any                SHUTDOWN: the leaf doesn't need it any more
//
// All fields are guarded by the channel's mu.
type subchannel struct {
	leaf    *leaf
	addr    resolver.Address
	state   connectivity.State
	err     error  // of the latest TRANSIENT_FAILURE
	link    *Link  // of CONNECTING and READY
	backoff *timer // of TRANSIENT_FAILURE
	retries int    // backoffs since the latest connection that Dial has returned

	// of the leaf
	failed bool // in the pass
	sticky bool // has failed in a pass: it doesn't take the leaf out of TRANSIENT_FAILURE by connecting
}

// set changes the state. The leaf may connect or shut the subchannel down in it, so it comes last.
func (s *subchannel) set(state connectivity.State, err error) {
	from := s.state
	s.state = state
	s.leaf.subChanged(s, from, err)
}

// connect starts an attempt.
func (s *subchannel) connect() {
	c := s.leaf.policy.channel
	wait := Backoff(c.config.ConnectParams.Backoff, s.retries)
	ctx, cancel := context.WithTimeout(context.Background(), max(wait, c.config.ConnectParams.MinConnectTimeout))
	l := &Link{sub: s, cancel: cancel, began: time.Now()}
	s.link = l
	go l.dial(ctx, wait)
	s.set(connectivity.Connecting, nil)
}

// Backoff returns the time from a failure to the next attempt.
func Backoff(config backoff.Config, retries int) time.Duration {
	if retries == 0 {
		return config.BaseDelay
	}
	wait, most := float64(config.BaseDelay), float64(config.MaxDelay)
	for ; wait < most && retries > 0; retries-- {
		wait *= config.Multiplier
	}
	wait = min(wait, most) * (1 + config.Jitter*(rand.Float64()*2-1))
	return time.Duration(max(wait, 0))
}

// resetBackoff ends the time after a failure.
func (s *subchannel) resetBackoff() {
	s.retries = 0
	if s.state == connectivity.TransientFailure {
		s.backoff.stop()
		s.set(connectivity.Idle, nil)
	}
}

// shutdown ends the subchannel. Calls on its connection go on.
func (s *subchannel) shutdown() {
	s.state = connectivity.Shutdown
	s.backoff.stop()
	if l := s.link; l != nil {
		s.link = nil
		l.cancel()
		if l.conn != nil {
			s.leaf.policy.channel.release(l)
		}
	}
}

// A Link is an attempt to connect, and the connection that it makes. [Config.Dial] gets it to report
// what happens to the connection.
//
//	state     conn  ended  left for
//	dialing   nil   false  open, or forgotten with an error or an abort
//	open      set   false  drained: Ended, or gone
//	drained   set   true   gone: Gone; from here on the channel doesn't know the link
//
// Ended and Gone may come before Dial has returned.
type Link struct {
	// immutable
	sub   *subchannel
	began time.Time

	// guarded by the channel's mu
	cancel      context.CancelFunc // of Dial, and then of what watches the server's health
	conn        Conn
	ended, gone bool
	served      bool // it had answered a call when it ended
}

// dial makes the connection, and reports the result to the subchannel.
func (l *Link) dial(ctx context.Context, wait time.Duration) {
	s := l.sub
	c := s.leaf.policy.channel
	addr := s.addr
	addr.ServerName = c.serverName(addr)
	conn, err := c.config.Dial(ctx, addr, l)

	c.mu.Lock()
	defer c.unlock()
	l.cancel()
	l.cancel = func() {} // the context's memory goes
	if err != nil {
		c.resolveNow() // like grpc-go, even if the subchannel has ended the attempt itself
	}
	switch {
	case s.link != l: // it has been shut down
		if err == nil {
			c.later(conn.Abort)
		}
	case err != nil:
		s.link, s.err = nil, err
		s.backoff = c.startTimer(wait, func() {
			s.retries++
			s.set(connectivity.Idle, nil)
		})
		s.set(connectivity.TransientFailure, err)
	default:
		s.retries = 0
		if l.conn = conn; !l.gone {
			c.links[l] = struct{}{}
		}
		if !l.ended {
			s.set(connectivity.Ready, nil)
			return
		}
		l.leave()
	}
}

// Ended reports that the connection takes no more calls: it has ended, or the peer has sent GOAWAY.
// served says that the peer has answered a call on it: without that, such connections slow down the
// attempts to connect. A connection must report its end before it refuses a call: otherwise the caller
// could get it again. Ended may be called more than once, by any goroutine, with no lock held that
// Conn's methods take.
func (l *Link) Ended(served bool) {
	c := l.sub.leaf.policy.channel
	c.mu.Lock()
	defer c.unlock()
	l.end(served)
}

// Gone reports that the connection has ended with all of its calls. It must be called for each
// connection that Dial has returned, and includes Ended, unless that was called before.
func (l *Link) Gone() {
	c := l.sub.leaf.policy.channel
	c.mu.Lock()
	defer c.unlock()
	l.gone = true
	delete(c.links, l)
	l.end(false)
}

func (l *Link) end(served bool) {
	if !l.ended {
		l.ended, l.served = true, served
	}
	if l.conn == nil {
		return // dial goes on
	}
	l.cancel()
	if l.sub.link == l {
		l.sub.leaf.policy.channel.resolveNow()
		l.leave()
	}
}

// leave takes a connection that has ended from its subchannel.
func (l *Link) leave() {
	s := l.sub
	s.link = nil
	s.leaf.ended(l.served || time.Since(l.began) >= s.leaf.policy.channel.config.ConnectParams.Backoff.BaseDelay)
	s.set(connectivity.Idle, nil)
}

// release lets a connection end. Channel.Close aborts all of them itself.
func (c *Channel) release(l *Link) {
	if !c.closed {
		c.later(l.conn.Close)
	}
}
