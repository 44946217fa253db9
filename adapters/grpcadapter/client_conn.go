package grpcadapter

import (
	"context"
	"errors"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// Interceptors want a *grpc.ClientConn. A Client that has interceptors gives them one whose own
// interceptors hand all calls to the Client, so grpc-go's transport below it has nothing to do. It never
// connects, even if it is told to: its resolver passes that on to the Client.

// makeConn makes the ClientConn of a client's interceptors. Its target is understood as the client's.
func makeConn(c *rpc.Client, target string) (*grpc.ClientConn, error) {
	scheme, _, _ := strings.Cut(c.CanonicalTarget(), ":")
	return grpc.NewClient(target,
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithResolvers(connectResolver{c, scheme}), grpc.WithContextDialer(neverDial),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return c.Invoke(ctx, method, req, reply, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, _ *grpc.ClientConn, method string, _ grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return c.NewStream(ctx, desc, method, opts...)
		}))
}

// neverDial is for a dial that can't come: without a resolver there are no addresses.
func neverDial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("grpcadapter: the *grpc.ClientConn of interceptors does not connect: its Client does")
}

// connectResolver is the resolver of such a ClientConn: being built makes the client connect.
type connectResolver struct {
	client *rpc.Client
	scheme string
}

func (r connectResolver) Scheme() string { return r.scheme }

// Build implements [resolver.Builder].
func (r connectResolver) Build(resolver.Target, resolver.ClientConn, resolver.BuildOptions) (resolver.Resolver, error) {
	r.client.Connect()
	return r, nil
}

func (connectResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (connectResolver) Close()                                {}
