package rpc

import (
	"context"
	"net/netip"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/admission"
)

// Work limits how many methods run at a time.
type Work struct {
	Limiter *admission.Limiter
	Exempt  func(fullMethod string) bool // nil: health checks
}

// errWork is the error of a call that gets no place.
var errWork = status.Error(codes.ResourceExhausted, "grpcadapter: the server has too many calls to serve this one in time")

// enter waits for a place for a call, and takes it. It reports whether it did: an exempt call takes
// none. The error is a status. After true, Limiter.Leave must be called.
func (w *Work) enter(ctx context.Context, fullMethod string) (placed bool, err error) {
	switch {
	case w.isExempt(fullMethod):
		return false, nil
	case w.Limiter.TryEnter():
		return true, nil
	}
	var from netip.AddrPort // zero for a unix socket: its clients count as one
	if p, ok := peer.FromContext(ctx); ok && p.Addr != nil {
		from, _ = netip.ParseAddrPort(p.Addr.String())
	}
	placed = w.Limiter.Enter(from.Addr(), ctx.Done())
	switch {
	case ctx.Err() != nil: // also if there was a place at the same time
		if placed {
			w.Limiter.Leave()
		}
		return false, contextError(ctx.Err())
	case !placed:
		return false, errWork
	}
	return true, nil
}

func (w *Work) isExempt(fullMethod string) bool {
	if w.Exempt == nil {
		return strings.HasPrefix(fullMethod, "/grpc.health.v1.Health/")
	}
	return w.Exempt(fullMethod)
}

// takePlace waits until the call's method may run. The error is its status. A call of ServeHTTP is a
// request of another server, which limits those.
func (c *call) takePlace() (err error) {
	if w := c.config().Work; w != nil && c.web == nil {
		c.placed, err = w.enter(c.ctx, c.method)
	}
	return err
}
