package target

import (
	"context"
	"errors"
	"io"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
)

// The gRPC service of the benchmark, written by hand. The well-known type BytesValue is message
// enough, and there is no generated code to keep up to date.
const (
	EchoUnary  = "/percore.bench.Echo/Unary"
	EchoStream = "/percore.bench.Echo/Stream"
)

// StreamDesc is the client's description of EchoStream.
var StreamDesc = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}

// echoService describes the service to a grpc.Server.
var echoService = grpc.ServiceDesc{
	ServiceName: "percore.bench.Echo",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Unary", Handler: echoUnary}},
	Streams:     []grpc.StreamDesc{{StreamName: "Stream", Handler: echoStream, ServerStreams: true, ClientStreams: true}},
}

// echoUnary answers with its request. It ignores interceptors, since the server doesn't have any.
func echoUnary(_ any, _ context.Context, dec func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := new(wrapperspb.BytesValue)
	if err := dec(in); err != nil {
		return nil, err
	}
	return in, nil
}

// echoStream sends every message back until the client is done.
func echoStream(_ any, s grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	for {
		if err := s.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
}

// newGRPCServer returns a grpc.Server with default options, one that runs with grpcadapter, or one
// past grpc-go's transport. It ends the process if that was refused: the figures would be wrong.
func newGRPCServer(e Engine) server {
	if e.FastPath {
		srv := grpc.NewServer(grpcadapter.ServerOptions()...)
		srv.RegisterService(&echoService, nil)
		past := grpcadapter.Wrap(srv, grpcadapter.FastPath())
		if err := past.Refusal(); err != nil {
			log.Fatal(err)
		}
		return past
	}
	if !e.Adapter {
		srv := grpc.NewServer()
		srv.RegisterService(&echoService, nil)
		return srv
	}
	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
	srv.RegisterService(&echoService, nil)
	return serverFunc(func(l net.Listener) error { return grpcadapter.Serve(srv, l) })
}
