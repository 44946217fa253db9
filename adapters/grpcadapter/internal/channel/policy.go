package channel

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/balancer/weight"
	"google.golang.org/grpc/resolver"
)

// A policy makes the state of a channel out of the states of its leaves.
//
//	a leaf is             state of the policy
//	READY                 READY: calls take turns on the connections of these leaves
//	CONNECTING, no READY  CONNECTING
//	IDLE, none of these   IDLE
//	TF, or no leaf        TRANSIENT_FAILURE: calls fail with the errors of the leaves in turn
//
// All fields are guarded by the channel's mu.
type policy struct {
	channel  *Channel
	balances bool // round_robin, with a leaf for each endpoint
	shuffles bool // pick_first tries endpoints in a random order (gRFC A62)
	state    connectivity.State
	leaves   []*leaf
	byName   *resolver.EndpointMap[*leaf] // nil for pick_first

	updating bool // changes are published at the end
	dirty    bool // there are changes
}

func newPolicy(c *Channel, balances bool) *policy {
	p := &policy{channel: c, balances: balances, state: connectivity.Connecting}
	if balances {
		p.byName = resolver.NewEndpointMap[*leaf]()
	} else {
		p.leaves = []*leaf{newLeaf(p)}
	}
	return p
}

// update takes addresses.
func (p *policy) update(s resolver.State) (err error) {
	p.batch(func() {
		if p.balances {
			err = p.updateEndpoints(s.Endpoints)
			return
		}
		endpoints := s.Endpoints
		if p.shuffles {
			endpoints = shuffle(endpoints)
		}
		var addrs []resolver.Address
		for _, e := range endpoints {
			addrs = append(addrs, e.Addresses...)
		}
		err = p.leaves[0].update(addrs)
	})
	return err
}

// shuffle returns the endpoints in a random order. One that weighs more than another is more likely to
// come before it (gRFC A113).
func shuffle(endpoints []resolver.Endpoint) []resolver.Endpoint {
	keys := make([]float64, len(endpoints))
	order := make([]int, len(endpoints))
	for i, e := range endpoints {
		order[i] = i
		keys[i] = math.Pow(rand.Float64(), 1/float64(max(1, weight.FromEndpoint(e).Weight)))
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(keys[b], keys[a]) })
	shuffled := make([]resolver.Endpoint, len(endpoints))
	for i, from := range order {
		shuffled[i] = endpoints[from]
	}
	return shuffled
}

// updateEndpoints gives each endpoint a leaf, and keeps those that there are. It returns the first error
// of a leaf.
func (p *policy) updateEndpoints(endpoints []resolver.Endpoint) (err error) {
	old := p.byName
	p.byName, p.leaves, p.dirty = resolver.NewEndpointMap[*leaf](), nil, true
	for _, e := range endpoints {
		if _, ok := p.byName.Get(e); ok {
			continue
		}
		f, ok := old.Get(e)
		if !ok {
			f = newLeaf(p)
		}
		old.Delete(e)
		p.byName.Set(e, f)
		p.leaves = append(p.leaves, f)
		if leafErr := f.update(e.Addresses); err == nil {
			err = leafErr
		}
	}
	for _, f := range old.Values() {
		f.close()
	}
	if len(p.leaves) == 0 {
		return balancer.ErrBadResolverState
	}
	return err
}

func (p *policy) resolverError(err error) {
	p.batch(func() {
		for _, f := range p.leaves {
			f.resolverError(err)
		}
		p.dirty = p.dirty || len(p.leaves) == 0
	})
}

func (p *policy) exitIdle() {
	p.batch(func() {
		for _, f := range p.leaves {
			f.exitIdle()
		}
	})
}

func (p *policy) resetBackoff() {
	p.batch(func() {
		for _, f := range p.leaves {
			f.resetBackoff()
		}
	})
}

func (p *policy) close() {
	for _, f := range p.leaves {
		f.close()
	}
	p.leaves = nil
}

// batch makes changes, and publishes them together.
func (p *policy) batch(change func()) {
	p.updating, p.dirty = true, false
	change()
	p.updating = false
	if p.dirty {
		p.publish()
	}
}

// leafChanged takes a change of a leaf.
func (p *policy) leafChanged(f *leaf) {
	p.dirty = true
	if !p.updating {
		p.publish()
	}
	if p.balances {
		f.exitIdle() // if it is idle: round_robin keeps all endpoints connected
	}
}

// precedence is the order of states: the policy takes the first that one of its leaves has.
var precedence = [...]connectivity.State{
	connectivity.Ready, connectivity.Connecting, connectivity.Idle, connectivity.TransientFailure,
}

func (p *policy) publish() {
	p.state = connectivity.TransientFailure
decide:
	for _, state := range precedence {
		for _, f := range p.leaves {
			if f.state == state {
				p.state = state
				break decide
			}
		}
	}
	p.channel.policyChanged(p)
}

// picker returns the picker for the state.
func (p *policy) picker() (pk picker) {
	pk.idle = p.state == connectivity.Idle
	for _, f := range p.leaves {
		switch {
		case f.state != p.state:
		case f.state == connectivity.Ready:
			pk.conns = append(pk.conns, f.conn)
		case f.state == connectivity.TransientFailure:
			pk.errs = append(pk.errs, f.err)
		}
	}
	if len(p.leaves) == 0 {
		pk.errs = []error{errNoLeaves}
	}
	return pk
}

var errNoLeaves = errors.New("no children to pick from")
