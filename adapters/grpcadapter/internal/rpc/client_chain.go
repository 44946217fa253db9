package rpc

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

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
