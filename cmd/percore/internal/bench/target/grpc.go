package target

import (
	"context"
	"errors"
	"io"
	"log"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// The gRPC service of the benchmark, written by hand. The well-known type BytesValue is message
// enough, and there is no generated code to keep up to date.
const (
	EchoUnary  = "/percore.bench.Echo/Unary"
	EchoStream = "/percore.bench.Echo/Stream"
	EchoList   = "/percore.bench.Echo/List"
	EchoWatch  = "/percore.bench.Echo/Watch"
)

// ListMessages is how many messages EchoList answers with.
const ListMessages = 1000

// The client's descriptions of EchoStream, and of EchoList and EchoWatch.
var (
	StreamDesc = grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}
	ServerDesc = grpc.StreamDesc{ServerStreams: true}
)

// echoService describes the service to a server. Its implementation is a *longPoll.
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

// echoList answers with its request, ListMessages times.
func echoList(_ any, s grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	if err := s.RecvMsg(in); err != nil {
		return err
	}
	for range ListMessages {
		if err := s.SendMsg(in); err != nil {
			return err
		}
	}
	return nil
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
		return grpcadapter.Detach(s, func(st *grpcadapter.Stream) {
			poll.keep(st, func() { st.Close(st.SendMsg(in)) })
			st.OnEnd(func(error) { poll.forget(st) })
		})
	}
	if err := poll.wait(s.Context()); err != nil {
		return err
	}
	return s.SendMsg(in)
}

// grpcServer is a server of the Echo service, with the handlers that wait.
type grpcServer struct {
	server
	poll *longPoll
}

func (s grpcServer) longPoll() *longPoll { return s.poll }

// newGRPCServer returns a server of the Echo service, without options but its credentials. It ends the
// process if Wrap refuses it: the figures would be wrong.
func newGRPCServer(spec Spec) (server, error) {
	e, poll := spec.Engine, newLongPoll(spec.Engine.Detach)
	creds := insecure.NewCredentials()
	if spec.TLS {
		cert, err := selfsigned.New("")
		if err != nil {
			return nil, err
		}
		creds = credentials.NewServerTLSFromCert(&cert)
	}
	if e.NewServer {
		srv := grpcadapter.NewServer(grpcadapter.Creds(creds))
		srv.RegisterService(&echoService, poll)
		return grpcServer{srv, poll}, nil
	}
	srv := grpc.NewServer(grpc.Creds(creds))
	srv.RegisterService(&echoService, poll)
	if !e.FastPath {
		return grpcServer{srv, poll}, nil
	}
	past := grpcadapter.Wrap(srv)
	if err := past.Refusal(); err != nil {
		log.Fatal(err)
	}
	return grpcServer{past, poll}, nil
}
