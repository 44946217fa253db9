// Command grpc is a grpc.Server with the health service on percore. Idle connections hold no read
// buffer.
//
//	go run ./grpc
//	grpcurl -plaintext localhost:50051 grpc.health.v1.Health/Check
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/percore/percore/adapters/grpcadapter"
)

func main() {
	address := flag.String("addr", "localhost:50051", "address to listen on")
	flag.Parse()

	ln, err := grpcadapter.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, ln); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends, and then finishes the running calls.
func serve(ctx context.Context, ln net.Listener) error {
	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
	status := health.NewServer()
	healthpb.RegisterHealthServer(srv, status)
	reflection.Register(srv)
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		status.Shutdown() // so that load balancers choose another server
		srv.GracefulStop()
	})
	err := grpcadapter.Serve(srv, ln)
	if !stop() {
		<-drained
	}
	return err
}
