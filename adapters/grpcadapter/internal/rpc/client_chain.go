package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
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
		invoke, _ := ofGRPC()
		return invoke(ctx, method, args, reply, cc, opts...)
	}
	return to.unary(ctx, method, args, reply, opts)
}

// streamer is the [grpc.Streamer] of interceptors.
func (c *Client) streamer(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	to := c.behind(cc)
	if to == nil {
		_, streamer := ofGRPC()
		return streamer(ctx, desc, cc, method, opts...)
	}
	return to.stream(ctx, desc, method, opts)
}

// ofGRPC returns the functions that make the calls of a grpc.ClientConn without its interceptors.
// grpc-go gives them to interceptors only, so two calls are made just to get them.
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
