package grpcadapter

import (
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/admission"
)

// LimitWork limits how many methods run at a time: each takes a place of l, which other servers may
// share. Further calls wait for their turn, on their goroutines, before their messages are read. A call
// that is refused, or has waited for too long, ends with ResourceExhausted, and neither interceptors
// nor the method see it. A call leaves the queue when the client cancels it or its deadline passes.
//
// exempt decides by the full method name ("/service/method") which calls are served at once, without
// a place. It must not block. nil exempts health checks: all methods of grpc.health.v1.Health.
//
// A stream keeps its place until its method returns, so exempt streams that wait for long, or use
// [Detach], so that the method returns. Calls through [Server.ServeHTTP] take no places, since they
// are requests of an http.Server: limit that server, with the same l.
//
// As an option of [Wrap] it has no effect where grpc-go's transport serves: see there.
//
// It panics if l is nil.
func LimitWork(l *admission.Limiter, exempt func(fullMethod string) bool) Option {
	refuseNil(l == nil, "LimitWork", "*admission.Limiter", "pass the result of admission.New")
	return addedOption(func(c *rpc.Config) { c.Work = &rpc.Work{Limiter: l, Exempt: exempt} })
}
