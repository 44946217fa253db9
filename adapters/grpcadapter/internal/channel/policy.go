package channel

import (
	"errors"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	estats "google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// A policy is one of grpc-go's load balancing policies, and its [balancer.ClientConn]. The queue
// policyCalls calls the methods of the balancer, and the listeners that it gives to subchannels. A
// program may have registered a balancer of its own under the name of grpc-go's: see foreign.go.
type policy struct {
	balancer.ClientConn // nil: grpc-go wants it embedded

	channel  *Channel
	name     string
	balancer balancer.Balancer // used by the queue only

	// guarded by the channel's mu
	state  balancer.State
	closed bool
	rest   rest                          // of all addresses, unless they are in rests
	rests  *resolver.AddressMapV2[*rest] // of round_robin: the addresses of an endpoint share one
}

func newPolicy(c *Channel, name string) *policy {
	return &policy{
		channel: c, name: name, rests: resolver.NewAddressMapV2[*rest](),
		state: balancer.State{ConnectivityState: connectivity.Connecting},
	}
}

// update takes addresses. It is called by the queue.
func (p *policy) update(s resolver.State, config serviceconfig.LoadBalancingConfig) error {
	c := p.channel
	if p.balancer == nil {
		p.balancer = balancer.Get(p.name).Build(p, balancer.BuildOptions{
			DialCreds: c.config.Build.DialCreds, Dialer: c.config.Build.Dialer, Authority: c.authority, Target: c.target,
		})
	}
	return p.balancer.UpdateClientConnState(balancer.ClientConnState{ResolverState: s, BalancerConfig: config})
}

// separate gives each endpoint a rest of its own. mu is held.
func (p *policy) separate(endpoints []resolver.Endpoint) {
	old := p.rests
	p.rests = resolver.NewAddressMapV2[*rest]()
	for _, e := range endpoints {
		r, ok := old.Get(e.Addresses[0])
		if !ok {
			r = new(rest)
		}
		for _, addr := range e.Addresses {
			p.rests.Set(addr, r)
		}
	}
}

// close ends the policy. mu is held.
func (p *policy) close() {
	p.closed = true
	p.channel.policyCalls.add(func() { p.balancer.Close() })
}

var (
	errPolicyClosed = errors.New("the policy is closed")
	errNoAddress    = errors.New("grpc: cannot create SubConn with empty address list")
)

// NewSubConn implements [balancer.ClientConn]. The policies make a subchannel for each address.
func (p *policy) NewSubConn(addrs []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	c := p.channel
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case p.closed:
		return nil, errPolicyClosed
	case len(addrs) == 0:
		return nil, errNoAddress
	}
	r, ok := p.rests.Get(addrs[0])
	if !ok {
		r = &p.rest
	}
	s := &subchannel{channel: c, addr: addrs[0], listen: o.StateListener, rest: r}
	if s.listen == nil {
		//lint:ignore SA1019 policies without a listener want it
		s.listen = func(state balancer.SubConnState) { p.balancer.UpdateSubConnState(s, state) }
	}
	c.subs[s] = struct{}{}
	return s, nil
}

// UpdateState implements [balancer.ClientConn].
func (p *policy) UpdateState(s balancer.State) {
	p.channel.mu.Lock()
	defer p.channel.mu.Unlock()
	if !p.closed {
		p.state = s
		p.channel.policyChanged(p)
	}
}

// ResolveNow implements [balancer.ClientConn].
func (p *policy) ResolveNow(resolver.ResolveNowOptions) {
	p.channel.mu.Lock()
	defer p.channel.mu.Unlock()
	p.channel.resolveNow()
}

// Target implements [balancer.ClientConn].
func (p *policy) Target() string { return p.channel.config.Target }

// MetricsRecorder implements [balancer.ClientConn]. Nothing is recorded.
func (p *policy) MetricsRecorder() estats.MetricsRecorder {
	return estats.UnimplementedMetricsRecorder{}
}
