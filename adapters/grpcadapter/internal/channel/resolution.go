package channel

import (
	"slices"
	"sync"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// A resolution is one resolver, from the end of an idleness to the next one. It implements
// [resolver.ClientConn].
type resolution struct {
	channel *Channel
	built   chan struct{} // closed when the resolver has been built

	resolver resolver.Resolver // of the queue; nil: Build has failed, or has not been called

	// guarded by the channel's mu
	closed bool
	asked  bool                       // ResolveNow is in the queue
	config *serviceconfig.ParseResult // the latest
}

// build builds the resolver. It is called by the queue.
func (r *resolution) build() {
	defer close(r.built)
	c := r.channel
	c.mu.Lock()
	closed := r.closed
	c.mu.Unlock()
	if closed {
		return
	}
	options := c.config.Build
	options.DisableServiceConfig = c.config.DisableServiceConfig
	options.Authority = c.authority
	built, err := c.builder.Build(c.target, r, options)
	if err == nil {
		r.resolver = built
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !r.closed {
		c.resolverError(err)
	}
}

// close closes the resolver when its turn in the queue has come.
func (r *resolution) close() {
	r.closed = true
	r.channel.resolverCalls.add(func() {
		if r.resolver != nil {
			r.resolver.Close()
		}
	})
}

// resolveNow asks the resolver for new addresses, once even if it is called often in the meantime.
func (c *Channel) resolveNow() {
	r := c.resolution
	if r == nil || r.asked {
		return
	}
	r.asked = true
	c.resolverCalls.add(func() {
		c.mu.Lock()
		r.asked = false
		closed := r.closed
		c.mu.Unlock()
		if !closed && r.resolver != nil {
			r.resolver.ResolveNow(resolver.ResolveNowOptions{})
		}
	})
}

// UpdateState implements [resolver.ClientConn].
func (r *resolution) UpdateState(s resolver.State) (err error) {
	if s.Endpoints == nil {
		s.Endpoints = endpoints(s.Addresses)
	}
	s.Endpoints = slices.DeleteFunc(slices.Clone(s.Endpoints), func(e resolver.Endpoint) bool { return len(e.Addresses) == 0 })
	r.channel.policyCalls.wait(func() { err = r.channel.apply(r, s) })
	return err
}

// NewAddress implements [resolver.ClientConn]. The service config stays.
func (r *resolution) NewAddress(addrs []resolver.Address) {
	r.channel.mu.Lock()
	config := r.config
	r.channel.mu.Unlock()
	_ = r.UpdateState(resolver.State{Addresses: addrs, ServiceConfig: config})
}

// endpoints makes an endpoint of each address.
func endpoints(addrs []resolver.Address) (endpoints []resolver.Endpoint) {
	for _, addr := range addrs {
		//lint:ignore SA1019 resolvers still set it
		e := resolver.Endpoint{Attributes: addr.BalancerAttributes}
		//lint:ignore SA1019 as above
		addr.BalancerAttributes = nil
		e.Addresses = []resolver.Address{addr}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

// ReportError implements [resolver.ClientConn].
func (r *resolution) ReportError(err error) {
	r.channel.mu.Lock()
	defer r.channel.mu.Unlock()
	if !r.closed {
		r.channel.resolverError(err)
	}
}

// ParseServiceConfig implements [resolver.ClientConn].
func (r *resolution) ParseServiceConfig(js string) *serviceconfig.ParseResult {
	return r.channel.config.ParseServiceConfig(js)
}

// A queue calls functions one after the other, in a goroutine that ends when there is none left.
type queue struct {
	mu      sync.Mutex
	work    []func()
	running bool
}

// add adds a function. It doesn't wait.
func (q *queue) add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.work = append(q.work, f)
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *queue) run() {
	for {
		q.mu.Lock()
		if len(q.work) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		f := q.work[0]
		q.work = q.work[1:]
		q.mu.Unlock()
		f()
	}
}

// wait calls a function when its turn has come, and waits until it has returned.
func (q *queue) wait(f func()) {
	done := make(chan struct{})
	q.add(func() {
		defer close(done)
		f()
	})
	<-done
}
