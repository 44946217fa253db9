package main

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	pb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/percore/percore/adapters/grpcadapter"
)

// grpcServices lists the gRPC server's services, for the terminal.
var grpcServices = []string{
	pb.BenchmarkService_ServiceDesc.ServiceName + " (UnaryCall and StreamingCall, which send back what they get)",
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
	pb.RegisterBenchmarkServiceServer(d.grpcServer, echoService{})
	d.health = health.NewServer() // reports SERVING for the server as a whole
	d.health.SetServingStatus(pb.BenchmarkService_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(d.grpcServer, d.health)
	reflection.Register(d.grpcServer)
}

// echoService sends back payloads: it is two methods of a service for tests that grpc-go has.
type echoService struct {
	pb.UnimplementedBenchmarkServiceServer
}

func (echoService) UnaryCall(_ context.Context, req *pb.SimpleRequest) (*pb.SimpleResponse, error) {
	return &pb.SimpleResponse{Payload: req.Payload}, nil
}

func (echoService) StreamingCall(stream grpc.BidiStreamingServer[pb.SimpleRequest, pb.SimpleResponse]) error {
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&pb.SimpleResponse{Payload: req.Payload}); err != nil {
			return err
		}
	}
}
