package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// ChainUnaryClient makes one interceptor of several, of which the first is the outermost.
func ChainUnaryClient(all []grpc.UnaryClientInterceptor) grpc.UnaryClientInterceptor {
	if len(all) <= 1 {
		return first(all)
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, last grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		return all[0](ctx, method, req, reply, cc, unaryClientChain{all, last}.from(1), opts...)
	}
}

type unaryClientChain struct {
	all  []grpc.UnaryClientInterceptor
	last grpc.UnaryInvoker
}

// from returns the rest of the way, from the interceptor with number i on.
func (c unaryClientChain) from(i int) grpc.UnaryInvoker {
	if i == len(c.all) {
		return c.last
	}
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
		return c.all[i](ctx, method, req, reply, cc, c.from(i+1), opts...)
	}
}

// ChainStreamClient is ChainUnaryClient for streams.
func ChainStreamClient(all []grpc.StreamClientInterceptor) grpc.StreamClientInterceptor {
	if len(all) <= 1 {
		return first(all)
	}
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, last grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return all[0](ctx, desc, cc, method, streamClientChain{all, last}.from(1), opts...)
	}
}

type streamClientChain struct {
	all  []grpc.StreamClientInterceptor
	last grpc.Streamer
}

// from returns the rest of the way, from the interceptor with number i on.
func (c streamClientChain) from(i int) grpc.Streamer {
	if i == len(c.all) {
		return c.last
	}
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		return c.all[i](ctx, desc, cc, method, c.from(i+1), opts...)
	}
}

// An interceptor may hand its call to another *grpc.ClientConn than it got. That may be one of another
// Client, or grpc-go's own.

// clientsOf has the clients by their ClientConns, until they are closed.
var clientsOf sync.Map // of *grpc.ClientConn to *Client

// SetConn sets the client's ClientConn, which interceptors get. It must be called before the first call,
// if there are interceptors.
func (c *Client) SetConn(cc *grpc.ClientConn) {
	c.conn.Store(cc)
	clientsOf.Store(cc, c)
}

// invokeOf returns what makes a unary call of cc.
func invokeOf(cc *grpc.ClientConn) grpc.UnaryInvoker {
	if c, ok := clientsOf.Load(cc); ok {
		return c.(*Client).unary
	}
	invoke, _ := ofGRPC()
	return invoke
}

// streamerOf returns what begins a stream of cc.
func streamerOf(cc *grpc.ClientConn) grpc.Streamer {
	if c, ok := clientsOf.Load(cc); ok {
		return c.(*Client).stream
	}
	_, streamer := ofGRPC()
	return streamer
}

// ofGRPC returns the functions that make the calls of a grpc.ClientConn without its interceptors.
// grpc-go gives them to interceptors only, so two calls that make nothing else fetch them.
var ofGRPC = sync.OnceValues(func() (invoke grpc.UnaryInvoker, streamer grpc.Streamer) {
	cc, err := grpc.NewClient("passthrough:///", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(_ context.Context, _ string, _, _ any, _ *grpc.ClientConn, its grpc.UnaryInvoker, _ ...grpc.CallOption) error {
			invoke = its
			return nil
		}),
		grpc.WithStreamInterceptor(func(_ context.Context, _ *grpc.StreamDesc, _ *grpc.ClientConn, _ string, its grpc.Streamer, _ ...grpc.CallOption) (grpc.ClientStream, error) {
			streamer = its
			return nil, nil
		}))
	if err != nil {
		panic("grpcadapter: grpc.NewClient refuses what it documents: " + err.Error())
	}
	defer cc.Close()
	_ = cc.Invoke(context.Background(), "", nil, nil)
	_, _ = cc.NewStream(context.Background(), new(grpc.StreamDesc), "")
	return invoke, streamer
})
