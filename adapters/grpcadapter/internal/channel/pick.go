package channel

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

//lint:ignore SA1019 programs compare with it
var errClosing = grpc.ErrClientConnClosing

// A picker has the connections that calls may use now, or the reason why there is none. Only next
// changes.
//
//	conns       errs        idle        unresolved  closed
//	the call uses one of conns
//	            the call fails with one of errs, or waits if it waits for ready
//	                        the call ends the idleness, and waits
//	                                    the call waits for the resolver
//	                                                the call fails
//	none of them: the call waits for a connection
type picker struct {
	conns      []Conn
	errs       []error
	idle       bool
	unresolved bool
	closed     bool

	next     uint32
	replaced chan struct{} // closed when there is a newer picker
}

func newPicker(p picker) *picker {
	p.replaced = make(chan struct{})
	p.next = rand.Uint32()
	return &p
}

func nextOf[T any](p *picker, list []T) T {
	if len(list) == 1 {
		return list[0]
	}
	return list[atomic.AddUint32(&p.next, 1)%uint32(len(list))]
}

// Ready returns a connection if there is one already, and nil otherwise. A call for which it returns
// nil is delayed, in the sense of stats.DelayedPickComplete, if Pick returns a connection for it.
func (c *Channel) Ready() Conn {
	if p := c.picker.Load(); len(p.conns) > 0 {
		return nextOf(p, p.conns)
	}
	return nil
}

// Pick returns a connection for a call. It ends the idleness of the channel, and waits until there is
// a connection, ctx ends, or, unless waitForReady is set, connecting has failed. Errors are those that
// grpc-go gives a call. The connection may have ended in the meantime: if it refuses the call, pick
// again.
func (c *Channel) Pick(ctx context.Context, waitForReady bool) (Conn, error) {
	if conn := c.Ready(); conn != nil {
		return conn, nil
	}
	return c.pick(ctx, waitForReady)
}

// Resolved waits until the resolver has brought something, which a service config for the call may
// have come with. It ends the idleness of the channel. It reports whether it had to wait.
func (c *Channel) Resolved(ctx context.Context) (waited bool, err error) {
	for p := c.picker.Load(); p.unresolved; p = c.picker.Load() {
		waited = true
		if err := c.await(ctx, p, nil); err != nil {
			return waited, err
		}
	}
	return waited, nil
}

// pick is Pick for a channel that has no connection now.
func (c *Channel) pick(ctx context.Context, waitForReady bool) (Conn, error) {
	var last error
	for {
		p := c.picker.Load()
		switch {
		case p.closed:
			return nil, errClosing
		case len(p.conns) > 0:
			return nextOf(p, p.conns), nil
		case len(p.errs) > 0:
			err := nextOf(p, p.errs)
			if s, ok := status.FromError(err); ok {
				return nil, restrict(s, err)
			}
			if !waitForReady {
				return nil, status.Error(codes.Unavailable, err.Error())
			}
			last = err
		}
		if err := c.await(ctx, p, last); err != nil {
			return nil, err
		}
	}
}

// await waits until p has been replaced.
func (c *Channel) await(ctx context.Context, p *picker, last error) error {
	if p.idle {
		c.exitIdle()
	}
	select {
	case <-p.replaced:
		return nil
	case <-ctx.Done():
	}
	s := status.FromContextError(ctx.Err())
	switch {
	case p.unresolved:
		return s.Err()
	case last != nil:
		return status.Error(s.Code(), "latest balancer error: "+last.Error())
	default:
		return status.Error(s.Code(), fmt.Sprintf("%v while waiting for connections to become ready", ctx.Err()))
	}
}

// restrict returns err, a status that a resolver or a connection has failed with, unless its code is
// restricted.
func restrict(s *status.Status, err error) error {
	if IsRestricted(s.Code()) {
		return status.Errorf(codes.Internal, "received picker error with illegal status: %v", err)
	}
	return err
}

// IsRestricted reports whether a code speaks of what a call is about, so that nothing but the server may
// give it (gRFC A54).
func IsRestricted(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted,
		codes.OutOfRange, codes.DataLoss:
		return true
	}
	return false
}
