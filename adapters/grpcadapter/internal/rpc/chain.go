package rpc

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// chain combines interceptors into one; the first is the outermost. It returns nil without
// interceptors. nest combines two.
func chain[I any](all []I, nest func(outer, inner I) I) (one I) {
	for i := len(all) - 1; i >= 0; i-- {
		if i == len(all)-1 {
			one = all[i]
		} else {
			one = nest(all[i], one)
		}
	}
	return one
}

// chainUnary combines unary interceptors as chain does.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return chain(all, func(outer, inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, last grpc.UnaryHandler) (any, error) {
			return outer(ctx, req, info, func(ctx context.Context, req any) (any, error) {
				return inner(ctx, req, info, last)
			})
		}
	})
}

// chainStream is chainUnary for streams.
func chainStream(all []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	return chain(all, func(outer, inner grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
		return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, last grpc.StreamHandler) error {
			return outer(srv, ss, info, func(srv any, ss grpc.ServerStream) error { return inner(srv, ss, info, last) })
		}
	})
}

// chainUnaryClient is chainUnary for the calls of a client.
func chainUnaryClient(all []grpc.UnaryClientInterceptor) grpc.UnaryClientInterceptor {
	return chain(all, func(outer, inner grpc.UnaryClientInterceptor) grpc.UnaryClientInterceptor {
		return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
			last grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return outer(ctx, method, req, reply, cc, func(ctx context.Context, method string, req, reply any,
				cc *grpc.ClientConn, opts ...grpc.CallOption) error {
				return inner(ctx, method, req, reply, cc, last, opts...)
			}, opts...)
		}
	})
}

// chainStreamClient is chainUnaryClient for streams.
func chainStreamClient(all []grpc.StreamClientInterceptor) grpc.StreamClientInterceptor {
	return chain(all, func(outer, inner grpc.StreamClientInterceptor) grpc.StreamClientInterceptor {
		return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
			last grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return outer(ctx, desc, cc, method, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn,
				method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				return inner(ctx, desc, cc, method, last, opts...)
			}, opts...)
		}
	})
}

// combineStats combines handlers into one that calls them in order. It returns nil without handlers.
func combineStats(all []stats.Handler) stats.Handler {
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return statsHandlers(all)
}

type statsHandlers []stats.Handler

// TagConn implements [stats.Handler].
func (all statsHandlers) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagConn(ctx, info)
	}
	return ctx
}

// HandleConn implements [stats.Handler].
func (all statsHandlers) HandleConn(ctx context.Context, e stats.ConnStats) {
	for _, h := range all {
		h.HandleConn(ctx, e)
	}
}

// TagRPC implements [stats.Handler].
func (all statsHandlers) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	for _, h := range all {
		ctx = h.TagRPC(ctx, info)
	}
	return ctx
}

// HandleRPC implements [stats.Handler].
func (all statsHandlers) HandleRPC(ctx context.Context, e stats.RPCStats) {
	for _, h := range all {
		h.HandleRPC(ctx, e)
	}
}
