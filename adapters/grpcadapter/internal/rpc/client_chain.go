package rpc

import (
	"context"

	"google.golang.org/grpc"
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
