package channel

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
)

// A subchannel connects to one address. It is the [balancer.SubConn] of a policy.
//
//	state              left for
//	IDLE               CONNECTING: the policy says so (Connect)
//	                   TRANSIENT_FAILURE: the same, but the endpoint rests
//	CONNECTING         READY: Dial has returned a connection
//	                   IDLE: the same, but the connection takes no more calls already
//	                   TRANSIENT_FAILURE: Dial has returned an error
//	READY              IDLE: the connection takes no more calls
//	TRANSIENT_FAILURE  IDLE: the backoff has passed, or has been reset
//	any                SHUTDOWN: the policy doesn't need it any more
type subchannel struct {
	balancer.SubConn // nil: grpc-go wants it embedded

	// immutable
	channel *Channel
	addr    resolver.Address
	listen  func(balancer.SubConnState) // called by the queue
	rest    *rest

	conn atomic.Pointer[Conn] // of READY; nil in other states

	// guarded by the channel's mu
	state   connectivity.State
	link    *Link  // of CONNECTING and READY
	backoff *timer // of TRANSIENT_FAILURE
	retries int    // failures since the latest connection that Dial has returned
}

// set changes the state, and reports it to the policy.
func (s *subchannel) set(state connectivity.State, err error) {
	s.state = state
	s.channel.policyCalls.add(func() {
		s.listen(balancer.SubConnState{ConnectivityState: state, ConnectionError: err})
	})
}

// fail enters TRANSIENT_FAILURE for a while.
func (s *subchannel) fail(err error, wait time.Duration) {
	s.backoff = s.channel.startTimer(wait, func() { s.set(connectivity.Idle, nil) })
	s.set(connectivity.TransientFailure, err)
}

// Connect implements [balancer.SubConn]: it starts an attempt.
func (s *subchannel) Connect() {
	c := s.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.state != connectivity.Idle {
		return
	}
	params := &c.config.ConnectParams
	if left := s.rest.left(); left > 0 {
		s.fail(errUseless, left)
		return
	}
	wait := Backoff(params.Backoff, s.retries)
	ctx, cancel := context.WithTimeout(context.Background(), max(wait, params.MinConnectTimeout))
	s.link = &Link{sub: s, cancel: cancel, began: time.Now()}
	s.set(connectivity.Connecting, nil)
	go s.link.dial(ctx, wait)
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
	s.retries, *s.rest = 0, rest{}
	if s.state == connectivity.TransientFailure {
		s.backoff.stop()
		s.set(connectivity.Idle, nil)
	}
}

// Shutdown implements [balancer.SubConn]. Calls on the connection go on.
func (s *subchannel) Shutdown() {
	c := s.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, s)
	s.backoff.stop()
	l := s.link
	s.link = nil
	s.conn.Store(nil)
	s.set(connectivity.Shutdown, nil)
	if l == nil {
		return
	}
	l.cancel()
	if l.conn != nil && !c.closed { // Channel.Close aborts all connections
		c.policyCalls.add(l.conn.Close)
	}
}

// RegisterHealthListener implements [balancer.SubConn]. round_robin calls it when the subchannel has
// entered READY.
func (s *subchannel) RegisterHealthListener(listen func(balancer.SubConnState)) {
	c := s.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	l := s.link
	if s.state != connectivity.Ready || listen == nil {
		return // the policy will hear of that
	}
	set := func(state connectivity.State, err error) {
		c.policyCalls.add(func() { listen(balancer.SubConnState{ConnectivityState: state, ConnectionError: err}) })
	}
	watch := c.config.HealthCheck(l.conn)
	if watch == nil {
		set(connectivity.Ready, nil)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go watch(ctx, func(state connectivity.State, err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if s.link == l {
			set(state, err)
		}
	})
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
	c := s.channel
	addr := s.addr
	addr.ServerName = c.serverName(addr)
	conn, err := c.config.Dial(ctx, addr, l)

	c.mu.Lock()
	defer c.mu.Unlock()
	l.cancel()
	l.cancel = func() {} // the context's memory goes
	if err != nil {
		c.resolveNow() // like grpc-go, even if the subchannel has ended the attempt itself
	}
	switch {
	case s.link != l, c.closed: // it has been shut down, or is about to be
		if err == nil {
			go conn.Abort()
		}
	case err != nil:
		s.link = nil
		s.retries++
		s.fail(err, wait)
	default:
		s.retries = 0
		if l.conn = conn; !l.gone {
			c.links[l] = struct{}{}
		}
		if l.ended {
			l.leave()
			return
		}
		s.conn.Store(&conn)
		s.set(connectivity.Ready, nil)
	}
}

// Ended reports that the connection takes no more calls: it has ended, or the peer has sent GOAWAY.
// served says that the peer has answered a call on it: without that, such connections slow down the
// attempts to connect. A connection must report its end before it refuses a call: otherwise the caller
// could get it again. Ended may be called more than once, by any goroutine, with no lock held that
// Conn's methods take.
func (l *Link) Ended(served bool) {
	c := l.sub.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	l.end(served)
}

// Gone reports that the connection has ended with all of its calls. It must be called for each
// connection that Dial has returned, and includes Ended, unless that was called before.
func (l *Link) Gone() {
	c := l.sub.channel
	c.mu.Lock()
	defer c.mu.Unlock()
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
		l.sub.channel.resolveNow()
		l.leave()
	}
}

// leave takes a connection that has ended from its subchannel.
func (l *Link) leave() {
	s := l.sub
	s.link = nil
	s.conn.Store(nil)
	config := s.channel.config.ConnectParams.Backoff
	s.rest.ended(l.served || time.Since(l.began) >= config.BaseDelay, config)
	s.set(connectivity.Idle, nil)
}
