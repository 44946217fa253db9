package channel

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
	"google.golang.org/grpc/status"
)

// A Conn is a connection that calls are made on. Its methods must not block; they may call the link's.
type Conn interface {
	// Close lets the connection end: open calls go on, and there are no new ones.
	Close()

	// Abort ends the connection at once. Close may have been called before.
	Abort()
}

// A Config says what a channel connects to, and how.
type Config struct {
	Target    string             // as for grpc.NewClient
	Resolvers []resolver.Builder // searched before the registry of package resolver
	Authority string             // grpc.WithAuthority's; "": by the rules of [Channel.Authority]

	// Build is given to resolvers. The channel sets DisableServiceConfig and Authority.
	Build resolver.BuildOptions

	// Dial makes a connection that is ready for calls. It must return soon after ctx has ended. ctx ends
	// when Dial returns, so a connection must not depend on it. The ServerName of addr is set. The text
	// of an error is the text of the calls that fail because of it.
	Dial func(ctx context.Context, addr resolver.Address, link *Link) (Conn, error)

	ConnectParams grpc.ConnectParams // as for grpc.WithConnectParams

	// DisableServiceConfig makes the channel ignore the service configs of resolvers.
	DisableServiceConfig bool

	// ParseServiceConfig parses the text of a service config.
	ParseServiceConfig func(js string) *serviceconfig.ParseResult

	// OnServiceConfig gets each valid service config that a resolver brings, before Policy is called for
	// the addresses that came with it. It reports false if the config is not of ParseServiceConfig's type.
	OnServiceConfig func(config serviceconfig.Config) bool

	// Policy returns the name of a load balancing policy, round_robin or pick_first, for addresses that
	// have come, and its configuration.
	Policy func() (name string, config serviceconfig.LoadBalancingConfig)

	// HealthCheck returns a function that watches the health of a connection's server until ctx ends, or
	// nil: there is no need to. set takes the state as often as it changes, and the error of
	// TRANSIENT_FAILURE. round_robin calls HealthCheck for each connection that is made.
	HealthCheck func(conn Conn) func(ctx context.Context, set func(connectivity.State, error))

	// IdleTimeout is the time without a call after which the channel enters IDLE; 0: never.
	IdleTimeout time.Duration
}

// A Channel picks connections for calls. All methods are safe for concurrent use.
type Channel struct {
	// immutable
	config    Config
	target    resolver.Target
	builder   resolver.Builder
	authority string
	start     time.Time

	resolverCalls queue // of the resolver; they may block
	policyCalls   queue // of policies, of their listeners, and of Conn.Close
	picker        atomic.Pointer[picker]

	_       [64]byte // each call writes the counters, and picker is read more often
	calls   atomic.Int64
	lastEnd atomic.Int64 // when calls was last 0, in ns since start
	_       [64]byte

	mu sync.Mutex

	// guarded by mu
	state      connectivity.State
	changed    chan struct{} // closed with the next change of state; nil: there is no waiter
	watch      func(connectivity.State)
	closed     bool
	resolution *resolution // nil: the channel is idle or closed
	configured bool        // a service config, or the default, has been applied
	policy     *policy     // nil: no addresses have come
	pending    *policy     // replaces policy when it has more to offer
	subs       map[*subchannel]struct{}
	links      map[*Link]struct{}
	idle       *timer
}

// New makes a channel. It does not connect.
func New(config Config) (*Channel, error) {
	c := &Channel{config: config, start: time.Now(), subs: make(map[*subchannel]struct{}), links: make(map[*Link]struct{})}
	if err := c.parse(); err != nil {
		return nil, err
	}
	if err := c.findAuthority(); err != nil {
		return nil, err
	}
	c.picker.Store(newPicker(picker{idle: true, unresolved: true}))
	return c, nil
}

// Connect makes an idle channel connect. It returns when the resolver has been built.
func (c *Channel) Connect() {
	if built := c.exitIdle(); built != nil {
		<-built
	}
}

// exitIdle ends the idleness of the channel, or of its policy. built is closed when the resolver has
// been built; it is nil if the channel is closed.
func (c *Channel) exitIdle() (built <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil
	case c.resolution != nil:
		if p := c.latest(); p != nil {
			c.policyCalls.add(func() { p.balancer.ExitIdle() })
		}
	default:
		c.resolution = &resolution{channel: c, built: make(chan struct{})}
		c.publish(connectivity.Connecting, picker{unresolved: true})
		c.resolverCalls.add(c.resolution.build)
		if c.config.IdleTimeout > 0 {
			c.idle = c.startTimer(c.config.IdleTimeout, c.checkIdle)
		}
	}
	return c.resolution.built
}

// CallStarted counts a call, which keeps the channel from becoming idle. It comes before Pick, which
// ends the idleness.
func (c *Channel) CallStarted() { c.calls.Add(1) }

// CallEnded ends what CallStarted began.
func (c *Channel) CallEnded() {
	if c.calls.Add(-1) == 0 && c.config.IdleTimeout > 0 {
		c.lastEnd.Store(int64(time.Since(c.start)))
	}
}

// checkIdle enters IDLE if there has been no call for the timeout, and comes back later otherwise. A
// call that starts at this moment may still pick a connection that is closed here. Close lets it go on.
func (c *Channel) checkIdle() {
	wait := c.config.IdleTimeout
	if c.calls.Load() == 0 {
		wait -= time.Since(c.start) - time.Duration(c.lastEnd.Load())
	}
	if wait > 0 {
		c.idle = c.startTimer(wait, c.checkIdle)
		return
	}
	c.stop(connectivity.Idle, picker{idle: true, unresolved: true})
}

// stop ends the resolver and the policies.
func (c *Channel) stop(state connectivity.State, p picker) {
	c.idle.stop()
	if c.resolution != nil {
		c.resolution.close()
		c.resolution = nil
	}
	for _, p := range []*policy{c.policy, c.pending} {
		if p != nil {
			p.close()
		}
	}
	c.policy, c.pending = nil, nil
	c.publish(state, p)
}

// Close ends the channel and all of its connections. It returns when the resolver has been closed. An
// attempt to connect that does not heed its context may still be under way; its connection is aborted.
func (c *Channel) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return errClosing
	}
	c.closed = true
	c.stop(connectivity.Shutdown, errPicker(errClosing))
	links := maps.Clone(c.links)
	c.mu.Unlock()
	for l := range links {
		l.conn.Abort()
	}
	c.policyCalls.wait(func() {})
	c.resolverCalls.wait(func() {})
	return nil
}

// publish sets the state and the picker, and wakes the calls and the goroutines that wait for them.
func (c *Channel) publish(state connectivity.State, p picker) {
	close(c.picker.Swap(newPicker(p)).replaced)
	if c.state == state {
		return
	}
	c.state = state
	if c.watch != nil {
		c.watch(state)
	}
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
}

// GetState returns the state of the channel.
func (c *Channel) GetState() connectivity.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// WaitForStateChange waits until the state isn't from. It reports false if ctx ends before that.
func (c *Channel) WaitForStateChange(ctx context.Context, from connectivity.State) bool {
	c.mu.Lock()
	if c.state != from {
		c.mu.Unlock()
		return true
	}
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	changed := c.changed
	c.mu.Unlock()
	select {
	case <-changed:
		return true
	case <-ctx.Done():
		return false
	}
}

// Watch calls f with the state, and again with each new one, in order. That is under the channel's mu,
// so f must not call the channel. A channel has one f: the last one.
func (c *Channel) Watch(f func(connectivity.State)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = f
	f(c.state)
}

// ResetConnectBackoff makes each subchannel that waits after a failure connect at once. The next
// failure of any of them counts as the first.
func (c *Channel) ResetConnectBackoff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		s.resetBackoff()
	}
}

// latest returns the policy that gets addresses; nil: there is none.
func (c *Channel) latest() *policy {
	if c.pending != nil {
		return c.pending
	}
	return c.policy
}

// apply takes what the resolver has brought. It is called by the queue.
func (c *Channel) apply(r *resolution, s resolver.State) error {
	c.mu.Lock()
	if r.closed {
		c.mu.Unlock()
		return nil
	}
	r.config = s.ServiceConfig
	configErr := c.applyServiceConfig(s.ServiceConfig)
	if configErr != nil && !c.configured {
		c.publish(connectivity.TransientFailure, errPicker(configErr))
		c.mu.Unlock()
		return balancer.ErrBadResolverState
	}
	c.configured = true
	name, config := c.config.Policy()
	p := c.policyFor(name)
	if name != pickfirst.Name {
		p.separate(s.Endpoints)
	}
	c.mu.Unlock()
	err := p.update(s, config)
	if configErr != nil {
		return balancer.ErrBadResolverState
	}
	return err
}

// applyServiceConfig hands a service config on. It returns an error, a status, if the config is wrong.
func (c *Channel) applyServiceConfig(result *serviceconfig.ParseResult) error {
	if result == nil || c.config.DisableServiceConfig {
		return nil
	}
	if result.Err != nil {
		return status.Errorf(codes.Unavailable, "error parsing service config: %v", result.Err)
	}
	if !c.config.OnServiceConfig(result.Config) {
		return status.Errorf(codes.Unavailable, "illegal service config type: %T", result.Config)
	}
	return nil
}

// policyFor returns the policy of a name, for addresses that have come.
func (c *Channel) policyFor(name string) *policy {
	switch latest := c.latest(); {
	case latest == nil:
		c.policy = newPolicy(c, name)
	case latest.name != name:
		if c.pending != nil {
			c.pending.close()
		}
		c.pending = newPolicy(c, name)
	}
	return c.latest()
}

// resolverError takes an error of the resolver.
func (c *Channel) resolverError(err error) {
	c.configured = true
	if p := c.latest(); p != nil {
		c.policyCalls.add(func() { p.balancer.ResolverError(err) })
		return
	}
	c.publish(connectivity.TransientFailure, errPicker(err))
}

// policyChanged takes the state of a policy. The new one of two policies takes over as soon as the old
// one has no connection, or it has itself finished connecting.
func (c *Channel) policyChanged(p *policy) {
	state := p.state.ConnectivityState
	switch {
	case p == c.policy && (c.pending == nil || state == connectivity.Ready):
	case p == c.policy,
		p == c.pending && (state != connectivity.Connecting || c.policy.state.ConnectivityState != connectivity.Ready):
		c.policy.close()
		c.policy, c.pending = c.pending, nil
	default:
		return
	}
	c.publish(c.policy.state.ConnectivityState, picker{of: c.policy.state.Picker})
}

// A timer calls a function under mu, unless it is stopped under mu before.
type timer struct {
	timer   *time.Timer
	stopped bool
}

func (c *Channel) startTimer(d time.Duration, f func()) *timer {
	t := new(timer)
	t.timer = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !t.stopped {
			f()
		}
	})
	return t
}

// stop stops t, which may be nil.
func (t *timer) stop() {
	if t != nil {
		t.stopped = true
		t.timer.Stop()
	}
}
