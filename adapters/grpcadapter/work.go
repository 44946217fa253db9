package grpcadapter

import (
	"context"
	"net/http"

	"google.golang.org/grpc"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/admission"
)

// LimitWork limits how many methods run at a time: each takes a place of l, which other servers may
// share. Calls that are too many wait for their turn, on their goroutines, before their messages are
// read. One that is refused, or has waited for too long, ends with ResourceExhausted, without
// interceptors and the method. One that the client cancels, or whose deadline passes, leaves the queue.
//
// exempt says by the full name of the method ("/service/method") which calls are served at once, without
// a place. It must not block. nil exempts health checks: all of grpc.health.v1.Health.
//
// A stream keeps its place until its method returns, so exempt those that wait for long, or use
// [Detach]: the method returns then. Calls of [Server.ServeHTTP] take no places, since they are requests
// of an http.Server: limit that, with the same l.
//
// In a grpc.Server (see [ServerOptions]) it limits by interceptors, in every transport. There a unary
// call's message is read before it waits, and a stream that is detached keeps its place until it ends.
//
// It panics if l is nil.
func LimitWork(l *admission.Limiter, exempt func(fullMethod string) bool) WorkOption {
	refuseNil(l == nil, "LimitWork", "*admission.Limiter", "pass the result of admission.New")
	return WorkOption{&rpc.Work{Limiter: l, Exempt: exempt}}
}

// A WorkOption is an option of [NewServer] and [ServerOptions].
type WorkOption struct{ work *rpc.Work }

func (o WorkOption) applyToServer(s *serverSettings) { s.Work = o.work }

// interceptors returns the option for a grpc.Server.
func (o WorkOption) interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			leave, err := o.enter(ctx, info.FullMethod)
			if err != nil {
				return nil, err
			}
			defer leave()
			return handler(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
			leave, err := o.enter(stream.Context(), info.FullMethod)
			if err != nil {
				return err
			}
			defer leave()
			return handler(srv, stream)
		}),
	}
}

// enter waits until a method may run.
func (o WorkOption) enter(ctx context.Context, fullMethod string) (leave func(), err error) {
	if ctx.Value(http.ServerContextKey) != nil { // a call of ServeHTTP
		return func() {}, nil
	}
	placed, err := o.work.Enter(ctx, fullMethod)
	if !placed {
		return func() {}, err
	}
	return o.work.Limiter.Leave, nil
}
