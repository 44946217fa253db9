package main

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/cmd/percore/internal/echopb"
)

// grpcServices lists the gRPC server's services, for the terminal.
var grpcServices = []string{
	echopb.Echo_ServiceDesc.ServiceName + " (Unary, ClientStream, ServerStream, BidiStream)",
	grpc_health_v1.Health_ServiceDesc.ServiceName,
	"server reflection",
}

// newGRPCServer makes a server of calls. Its Stop waits for handlers, so that nothing runs afterwards.
func (d *demo) newGRPCServer() {
	options := []grpcadapter.Option{grpcadapter.WaitForHandlers(true)}
	if d.opts.maxAge > 0 {
		options = append(options, grpcadapter.KeepaliveParams(keepalive.ServerParameters{MaxConnectionAge: d.opts.maxAge}))
	}
	d.grpcServer = grpcadapter.NewServer(options...)
	echopb.RegisterEchoServer(d.grpcServer, echoService{})
	d.health = health.NewServer() // reports SERVING for the server as a whole
	d.health.SetServingStatus(echopb.Echo_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(d.grpcServer, d.health)
	reflection.Register(d.grpcServer)
}

// The limits that echo.proto promises.
const (
	clientStreamBytesMax = 1 << 20 // well below the 4 MiB that gRPC clients accept in one message
	serverStreamCountMax = 1_000_000
)

// echoService implements the service of echo.proto.
type echoService struct {
	echopb.UnimplementedEchoServer
}

func (echoService) Unary(_ context.Context, req *echopb.EchoRequest) (*echopb.EchoResponse, error) {
	return &echopb.EchoResponse{Message: req.GetMessage()}, nil
}

func (echoService) ClientStream(stream grpc.ClientStreamingServer[echopb.EchoRequest, echopb.ClientStreamResponse]) error {
	var joined strings.Builder
	for count := uint64(0); ; count++ {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&echopb.ClientStreamResponse{Message: joined.String(), Count: count})
		}
		if err != nil {
			return err
		}
		if joined.Len()+len(req.GetMessage()) > clientStreamBytesMax {
			return status.Errorf(codes.ResourceExhausted, "the messages exceed %d bytes", clientStreamBytesMax)
		}
		joined.WriteString(req.GetMessage())
	}
}

func (echoService) ServerStream(req *echopb.ServerStreamRequest, stream grpc.ServerStreamingServer[echopb.EchoResponse]) error {
	count := max(req.GetCount(), 1)
	if count > serverStreamCountMax {
		return status.Errorf(codes.InvalidArgument, "count is %d, want at most %d", count, serverStreamCountMax)
	}
	pause := time.Duration(req.GetIntervalMs()) * time.Millisecond
	for sent := range count {
		if sent > 0 && pause > 0 {
			select {
			case <-time.After(pause):
			case <-stream.Context().Done():
				return status.FromContextError(stream.Context().Err()).Err()
			}
		}
		if err := stream.Send(&echopb.EchoResponse{Message: req.GetMessage()}); err != nil {
			return err
		}
	}
	return nil
}

func (echoService) BidiStream(stream grpc.BidiStreamingServer[echopb.EchoRequest, echopb.EchoResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&echopb.EchoResponse{Message: req.GetMessage()}); err != nil {
			return err
		}
	}
}
