package channel

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"
)

// The methods below are for balancers that a program has registered under the names of grpc-go's, which
// don't call them. Without them, such a balancer would call methods of a nil interface.

// RemoveSubConn implements [balancer.ClientConn].
func (p *policy) RemoveSubConn(s balancer.SubConn) { s.Shutdown() }

// UpdateAddresses implements [balancer.ClientConn]. It has no effect: a subchannel keeps its address.
func (p *policy) UpdateAddresses(balancer.SubConn, []resolver.Address) {}

// UpdateAddresses implements [balancer.SubConn]. It has no effect either.
func (s *subchannel) UpdateAddresses([]resolver.Address) {}

// GetOrBuildProducer implements [balancer.SubConn]. The producer's calls fail.
func (s *subchannel) GetOrBuildProducer(b balancer.ProducerBuilder) (balancer.Producer, func()) {
	return b.Build(noCalls{})
}

// noCalls is a [grpc.ClientConnInterface] without a connection.
type noCalls struct{}

var errNoCalls = status.Error(codes.Unimplemented, "grpcadapter's client makes no calls for load balancing policies")

// Invoke implements [grpc.ClientConnInterface].
func (noCalls) Invoke(context.Context, string, any, any, ...grpc.CallOption) error { return errNoCalls }

// NewStream implements [grpc.ClientConnInterface].
func (noCalls) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errNoCalls
}
