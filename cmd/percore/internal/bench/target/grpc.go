package target

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// The client's descriptions of EchoStream, and of EchoList and EchoWatch.
var (
	StreamDesc = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
	ServerDesc = grpc.StreamDesc{ServerStreams: true}
)

// echoService is written by hand. The well-known type BytesValue is message enough, and there is no
// generated code to keep up to date. Its implementation is a *longPoll.
var echoService = grpc.ServiceDesc{
	ServiceName: "percore.bench.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: echoUnary}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Stream", Handler: echoStream, ServerStreams: true, ClientStreams: true},
		{StreamName: "List", Handler: echoList, ServerStreams: true},
		{StreamName: "Watch", Handler: echoWatch, ServerStreams: true},
	},
}

// echoUnary answers with its request. It ignores interceptors, since the server doesn't have any.
func echoUnary(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.BytesValue)
	return in, dec(in)
}

func echoStream(_ any, s grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	for {
		if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
}

// echoList answers with its request, ListMessages times.
func echoList(_ any, s grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	err := s.RecvMsg(in)
	for n := 0; n < scenario.ListMessages && err == nil; n++ {
		err = s.SendMsg(in)
	}
	return err
}

// echoWatch answers with its request, and once more when it need no longer wait.
func echoWatch(impl any, s grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	if err := s.SendMsg(in); err != nil {
		return err
	}
	poll := impl.(*longPoll)
	if poll.detach {
		return grpcadapter.Detach(s, func(st *grpcadapter.Answer) {
			poll.keep(st, func() { st.CloseWithError(st.SendMsg(in)) })
			st.OnEnd(func(error) { poll.forget(st) })
		})
	}
	if err := poll.wait(s.Context()); err != nil {
		return err
	}
	return s.SendMsg(in)
}

// newGRPCServer returns a server of the Echo service, without options.
func newGRPCServer(order *scenario.Order) (*server, error) {
	poll := newLongPoll(order.Engine.Detach)
	var srv interface {
		grpc.ServiceRegistrar
		Serve(net.Listener) error
	} = grpc.NewServer()
	if order.Engine.Kind == scenario.NewServer {
		srv = grpcadapter.NewServer()
	}
	srv.RegisterService(&echoService, poll)
	serve := srv.Serve
	if order.Engine.Kind == scenario.FastPath {
		past := grpcadapter.Wrap(srv.(*grpc.Server))
		if err := past.Refusal(); err != nil {
			return nil, err // the figures would be wrong
		}
		serve = past.Serve
	}
	return &server{serve: serve, poll: poll}, nil
}
