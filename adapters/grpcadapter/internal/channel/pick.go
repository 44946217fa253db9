package channel

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

//lint:ignore SA1019 programs compare with it
var errClosing = grpc.ErrClientConnClosing

// A picker says what calls do now. It is immutable.
//
//	of   unresolved  idle   a call
//	set  false       false  gets a connection, fails, or waits, as of says
//	nil  true        false  waits for the resolver
//	nil  true        true   ends the idleness, and waits
type picker struct {
	of         balancer.Picker
	unresolved bool
	idle       bool
	replaced   chan struct{} // closed when there is a newer picker
}

func newPicker(p picker) *picker {
	p.replaced = make(chan struct{})
	return &p
}

// errPicker returns a picker with which calls fail.
func errPicker(err error) picker { return picker{of: base.NewErrPicker(err)} }

// pick returns a connection, or why there is none.
func (p *picker) pick() (Conn, error) {
	if p.of == nil {
		return nil, balancer.ErrNoSubConnAvailable
	}
	result, err := p.of.Pick(balancer.PickInfo{Ctx: context.Background()})
	if err != nil {
		return nil, err
	}
	s, ok := result.SubConn.(*subchannel)
	if !ok {
		return nil, balancer.ErrNoSubConnAvailable // as grpc-go for a SubConn that isn't its own
	}
	if conn := s.conn.Load(); conn != nil {
		return *conn, nil
	}
	return nil, balancer.ErrNoSubConnAvailable // the connection has ended, and the policy will hear of that
}

// Ready returns a connection if there is one already, and nil otherwise. A call for which it returns
// nil is delayed, in the sense of stats.DelayedPickComplete, if Pick returns a connection for it.
func (c *Channel) Ready() Conn {
	conn, _ := c.picker.Load().pick()
	return conn
}

// Pick returns a connection for a call. It ends the idleness of the channel, and waits until there is
// a connection, ctx ends, or, unless waitForReady is set, connecting has failed. Errors are those that
// grpc-go gives a call. The connection may have ended in the meantime: if it refuses the call, pick
// again.
func (c *Channel) Pick(ctx context.Context, waitForReady bool) (Conn, error) {
	var last error
	for {
		p := c.picker.Load()
		conn, err := p.pick()
		switch {
		case err == nil:
			return conn, nil
		case err != balancer.ErrNoSubConnAvailable:
			if s, ok := status.FromError(err); ok {
				if IsRestricted(s.Code()) {
					err = status.Errorf(codes.Internal, "received picker error with illegal status: %v", err)
				}
				return nil, err
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

// IsRestricted reports whether only a server may end a call with a code, because the code is about what
// the call asks for (gRFC A54).
func IsRestricted(code codes.Code) bool {
	switch code {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition, codes.Aborted,
		codes.OutOfRange, codes.DataLoss:
		return true
	}
	return false
}
