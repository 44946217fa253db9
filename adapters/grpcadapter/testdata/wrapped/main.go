// Command wrapped serves a call with grpcadapter.Wrap, and prints why that was refused, if it was.
// A test builds it with other versions of grpc-go.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
)

func main() {
	srv := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if info.FullMethod == "/grpc.health.v1.Health/Check" {
				return nil, status.Error(codes.PermissionDenied, "no right")
			}
			return handler(ctx, req)
		}))
	healthpb.RegisterHealthServer(srv, health.NewServer())
	w := grpcadapter.Wrap(srv)
	ln, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- w.Serve(ln) }()
	fmt.Printf("grpc-go %s, refused: %v\n", grpc.Version, w.Refusal())
	check(ln)
	srv.GracefulStop()
	if err := <-served; err != nil {
		log.Fatal(err)
	}
}

// check makes a call that the interceptor denies.
func check(ln net.Listener) {
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err = healthpb.NewHealthClient(cc).Check(ctx, new(healthpb.HealthCheckRequest))
	fmt.Println("the call:", err)
}
