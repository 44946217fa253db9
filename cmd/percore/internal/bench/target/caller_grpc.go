package target

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

type grpcClient interface {
	grpc.ClientConnInterface
	Close() error
}

// newGRPCClient makes a client of the backend. It connects with the first call.
func newGRPCClient(order *scenario.Order) (grpcClient, error) {
	target := "passthrough:///" + order.Behind
	if order.Engine.Kind == scenario.FastPath {
		return grpcadapter.NewClient(target, grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// callGRPC sets what calls over gRPC, on several connections in turn.
func (c *caller) callGRPC(order *scenario.Order) {
	in := wrapperspb.Bytes(make([]byte, order.Backend.Payload))
	var calls []func() error
	for range order.Backend.Conns {
		cc, err := newGRPCClient(order)
		c.err = errors.Join(c.err, err)
		c.closes = append(c.closes, func() { cc.Close() })
		call := callOfKind(order.Backend)
		calls = append(calls, func() error { return call(cc, in) })
	}
	c.call = inTurn(calls)
}

// callOfKind returns what makes calls on one connection.
func callOfKind(backend *scenario.Scenario) func(grpcClient, *wrapperspb.BytesValue) error {
	switch {
	case backend.List:
		return callList
	case backend.Stream:
		return make(openStreams, idleMax).pingPong
	}
	return callUnary
}

var errOther = errors.New("the backend sent back another message")

func callUnary(c grpcClient, in *wrapperspb.BytesValue) error {
	out := new(wrapperspb.BytesValue)
	err := c.Invoke(context.Background(), scenario.EchoUnary, in, out)
	if err == nil && len(out.Value) != len(in.Value) {
		err = errOther
	}
	return err
}

// callList makes a call that is answered by ListMessages messages.
func callList(c grpcClient, in *wrapperspb.BytesValue) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.NewStream(ctx, &ServerDesc, scenario.EchoList)
	if err != nil {
		return err
	}
	if err := errors.Join(s.SendMsg(in), s.CloseSend()); err != nil {
		return err
	}
	out := new(wrapperspb.BytesValue)
	for n := 0; ; n++ {
		switch err := s.RecvMsg(out); {
		case err == io.EOF && n == scenario.ListMessages:
			return nil
		case err == io.EOF:
			return fmt.Errorf("the backend sent %d messages, want %d", n, scenario.ListMessages)
		case err != nil:
			return err
		case len(out.Value) != len(in.Value):
			return errOther
		}
	}
}

// openStreams are the streams of a connection that no call uses, at most idleMax.
type openStreams chan grpc.ClientStream

// pingPong sends a message on a stream that stays open, and receives it.
func (o openStreams) pingPong(c grpcClient, in *wrapperspb.BytesValue) (err error) {
	var s grpc.ClientStream
	select {
	case s = <-o:
	default:
		if s, err = c.NewStream(context.Background(), &StreamDesc, scenario.EchoStream); err != nil {
			return err
		}
	}
	out := new(wrapperspb.BytesValue)
	if err := s.SendMsg(in); err != nil {
		return err
	}
	if err := s.RecvMsg(out); err != nil {
		return err
	}
	if len(out.Value) != len(in.Value) {
		return errOther
	}
	o <- s
	return nil
}
