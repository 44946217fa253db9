package grpcadapter

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// ClientConn returns a *grpc.ClientConn whose calls go through the client, for code that doesn't
// take a [grpc.ClientConnInterface]: grpc-gateway's RegisterXHandler, otlptracegrpc.WithGRPCConn,
// option.WithGRPCConn of Google's libraries, proxies. It is always the same one, which the client's
// interceptors get too.
//
// Its calls pass through the client's interceptors, defaults and stats handlers once. Connect,
// GetState, WaitForStateChange, GetMethodConfig, Target and CanonicalTarget are about the client.
// Connect may return before the state is CONNECTING, and GetMethodConfig may lag behind. Closing
// either closes both.
//
// It has no connections of its own, so ResetConnectBackoff does nothing, and channelz lists no
// calls. grpc.PreparedMsg can't be encoded for its streams. Interceptors of a grpc.ClientConn that
// doesn't belong to a Client can't hand their calls to this one: such calls fail with Unavailable.
// It is made on the first call of this method, because it keeps three goroutines of grpc-go alive.
func (c *Client) ClientConn() *grpc.ClientConn {
	inner := c.made("ClientConn")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		c.conn = makeConn(inner)
		inner.SetConn(c.conn)
		if inner.GetState() == connectivity.Shutdown { // Close may have found no ClientConn
			_ = c.conn.Close()
		}
	}
	return c.conn
}

// makeConn makes the ClientConn of a client. Its interceptors hand all calls to the client, its
// balancer gets the state from the client, and its resolver gets the service config. There are no
// addresses, so grpc-go's transport below has nothing to do.
func makeConn(c *rpc.Client) *grpc.ClientConn {
	scheme, _, _ := strings.Cut(c.CanonicalTarget(), ":")
	cc, err := grpc.NewClient(c.Target(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0), grpc.WithNoProxy(),
		grpc.WithMaxCallAttempts(c.AttemptsMost()), grpc.WithResolvers(&connResolver{client: c, scheme: scheme}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return c.Invoke(ctx, method, req, reply, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return c.NewStream(ctx, desc, method, opts...)
		}))
	if err != nil {
		panic("grpcadapter: grpc.NewClient refuses the target that the client has taken: " + err.Error())
	}
	cc.Connect() // builds the resolver and the balancer
	return cc
}

// connResolver is the resolver of a client's ClientConn, and its builder. It passes on the client's
// service config, with connPolicy in place of the client's policy.
type connResolver struct {
	client *rpc.Client
	scheme string

	mu sync.Mutex // held while a service config is handed on, so that the latest one is the last
}

// Scheme implements [resolver.Builder]. It is the scheme of the client's target.
func (r *connResolver) Scheme() string { return r.scheme }

// Build implements [resolver.Builder].
func (r *connResolver) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	r.client.WatchServiceConfig(func() { r.update(cc) })
	return r, nil
}

// update passes on the service config.
func (r *connResolver) update(cc resolver.ClientConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	config := cc.ParseServiceConfig(`{"loadBalancingConfig":[{"` + connPolicy + `":{}}]}`)
	//lint:ignore SA1019 GetMethodConfig reads it
	if of, ok := cc.ParseServiceConfig(r.client.ServiceConfig()).Config.(*grpc.ServiceConfig); ok {
		//lint:ignore SA1019 as above
		config.Config.(*grpc.ServiceConfig).Methods = of.Methods
	}
	_ = cc.UpdateState(resolver.State{ServiceConfig: config, Attributes: attributes.New(connKey{}, r.client)})
}

// ResolveNow implements [resolver.Resolver].
func (*connResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements [resolver.Resolver]. The ClientConn has been closed, as it never becomes idle.
func (r *connResolver) Close() { _ = r.client.Close() }

// connKey is the key of the *rpc.Client that the resolver passes to the balancer.
type connKey struct{}

// connPolicy is the name of the policy that has the state of a Client.
const connPolicy = "percore_client"

func init() { balancer.Register(connBalancerBuilder{}) }

// connBalancerBuilder makes connBalancers.
type connBalancerBuilder struct{}

// Name implements [balancer.Builder].
func (connBalancerBuilder) Name() string { return connPolicy }

// Build implements [balancer.Builder].
func (connBalancerBuilder) Build(cc balancer.ClientConn, _ balancer.BuildOptions) balancer.Balancer {
	return &connBalancer{cc: cc}
}

// connBalancer is the balancer of a client's ClientConn. grpc-go calls one method at a time.
type connBalancer struct {
	cc     balancer.ClientConn
	client *rpc.Client
	made   bool // makeConn has called Connect, which must not connect the client
}

// UpdateClientConnState implements [balancer.Balancer].
func (b *connBalancer) UpdateClientConnState(s balancer.ClientConnState) error {
	client, ok := s.ResolverState.Attributes.Value(connKey{}).(*rpc.Client)
	if !ok {
		return balancer.ErrBadResolverState // a service config of another client has the policy
	}
	if b.client == nil {
		b.client = client
		client.Watch(func(state connectivity.State) {
			b.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: connPicker})
		})
	}
	return nil
}

// connPicker is for calls that have got past the interceptors.
var connPicker = base.NewErrPicker(status.Error(codes.Unavailable,
	"grpcadapter: the *grpc.ClientConn of a Client was handed a call by an interceptor of another grpc.ClientConn, which it can't make"))

// ExitIdle implements [balancer.Balancer]: it is called for Connect.
func (b *connBalancer) ExitIdle() {
	if b.made && b.client != nil {
		b.client.Connect()
	}
	b.made = true
}

// ResolverError implements [balancer.Balancer].
func (b *connBalancer) ResolverError(err error) {
	b.cc.UpdateState(balancer.State{ConnectivityState: connectivity.TransientFailure, Picker: base.NewErrPicker(err)})
}

// UpdateSubConnState implements [balancer.Balancer]. There are no SubConns.
func (*connBalancer) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// Close implements [balancer.Balancer].
func (*connBalancer) Close() {}
