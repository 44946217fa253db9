package grpcadapter

import (
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
// As an option of [Wrap] it does not hold where grpc-go's transport serves: see there.
//
// It panics if l is nil.
func LimitWork(l *admission.Limiter, exempt func(fullMethod string) bool) Option {
	refuseNil(l == nil, "LimitWork", "*admission.Limiter", "pass the result of admission.New")
	return addedOption(func(c *rpc.Config) { c.Work = &rpc.Work{Limiter: l, Exempt: exempt} })
}
