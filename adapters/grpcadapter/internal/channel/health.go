package channel

import (
	"context"
	"fmt"

	"google.golang.org/grpc/connectivity"
)

// checkHealth watches the health of the server that s is connected to. It reports false if there is no
// need to. Until the health is known the leaf is CONNECTING.
func (f *leaf) checkHealth(s *subchannel) bool {
	c, l := f.policy.channel, s.link
	if !f.policy.balances {
		return false
	}
	watch := c.config.HealthCheck(l.conn)
	if watch == nil {
		return false
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	f.set(connectivity.Connecting)
	go watch(ctx, func(state connectivity.State, err error) {
		c.mu.Lock()
		defer c.unlock()
		if s.link == l {
			f.healthChanged(l, state, err)
		}
	})
	return true
}

// healthChanged takes the health of the server that the leaf is connected to.
func (f *leaf) healthChanged(l *Link, state connectivity.State, err error) {
	switch state {
	case connectivity.Ready:
		f.conn = l.conn
		f.set(state)
	case connectivity.TransientFailure:
		f.fail(fmt.Errorf("pickfirst: health check failure: %v", err))
	default:
		f.set(state)
	}
}
