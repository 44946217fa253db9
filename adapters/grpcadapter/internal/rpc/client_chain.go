package rpc

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/serviceconfig"
)

// An interceptor may pass its call to another *grpc.ClientConn than it got. It may belong to another
// Client, or to grpc-go.

// clientsOf maps each ClientConn to its client, until the client is closed.
var clientsOf sync.Map // of *grpc.ClientConn to *Client

// SetConn sets the ClientConn that interceptors get. With interceptors, it must be called before the
// first call.
func (c *Client) SetConn(cc *grpc.ClientConn) {
	c.conn.Store(cc)
	clientsOf.Store(cc, c)
}

// behind returns the client of cc, or nil if cc is grpc-go's own.
func (c *Client) behind(cc *grpc.ClientConn) *Client {
	if cc == c.conn.Load() {
		return c
	}
	of, _ := clientsOf.Load(cc)
	other, _ := of.(*Client)
	return other
}

// invoke is the [grpc.UnaryInvoker] of interceptors.
func (c *Client) invoke(ctx context.Context, method string, args, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
	to := c.behind(cc)
	if to == nil {
		return ofGRPC().invoke(ctx, method, args, reply, cc, opts...)
	}
	return to.unary(ctx, method, args, reply, opts)
}

// streamer is the [grpc.Streamer] of interceptors.
func (c *Client) streamer(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	to := c.behind(cc)
	if to == nil {
		return ofGRPC().stream(ctx, desc, cc, method, opts...)
	}
	return to.stream(ctx, desc, method, opts)
}

// grpcFuncs are functions of grpc-go that it gives to interceptors and resolvers only.
type grpcFuncs struct {
	invoke grpc.UnaryInvoker // makes a call of a grpc.ClientConn, without its interceptors
	stream grpc.Streamer     // the same
	parse  func(js string) *serviceconfig.ParseResult
}

// ofGRPC returns grpc-go's functions. It makes a ClientConn and two calls just to get them.
var ofGRPC = sync.OnceValue(func() (funcs grpcFuncs) {
	parser := make(parserBuilder, 1)
	cc, err := grpc.NewClient("grpcadapter:///", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithMaxCallAttempts(math.MaxInt), // parse doesn't limit them
		grpc.WithResolvers(parser),
		grpc.WithUnaryInterceptor(func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, its grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			funcs.invoke = its
			return nil
		}),
		grpc.WithStreamInterceptor(func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, its grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			funcs.stream = its
			return nil, nil
		}))
	if err != nil {
		panic("grpcadapter: grpc.NewClient refuses what it documents: " + err.Error())
	}
	defer cc.Close()
	cc.Connect() // builds the resolver
	select {
	case funcs.parse = <-parser:
	case <-time.After(parserTime): // a later grpc-go might build none
		funcs.parse = func(string) *serviceconfig.ParseResult { return &serviceconfig.ParseResult{Err: errNoParser} }
	}
	_ = cc.Invoke(context.Background(), "", nil, nil)
	_, _ = cc.NewStream(context.Background(), new(grpc.StreamDesc), "")
	return funcs
})

const parserTime = time.Second

var errNoParser = errors.New("grpcadapter: this version of grpc-go gives resolvers no parser of service configs that is known")

// parserBuilder builds no resolver: it only takes the parser that a resolver would get.
type parserBuilder chan func(js string) *serviceconfig.ParseResult

// Scheme implements [resolver.Builder].
func (parserBuilder) Scheme() string { return "grpcadapter" }

// Build implements [resolver.Builder].
func (b parserBuilder) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	select {
	case b <- cc.ParseServiceConfig:
	default: // it was built before
	}
	return nil, errors.ErrUnsupported
}
