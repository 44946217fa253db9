// Command grpc is a grpc.Server with the health service on percore, whose calls are served past
// grpc-go's transport. Idle connections hold no goroutine and no buffer.
//
//	go run ./grpc
//	grpcurl -plaintext localhost:50051 grpc.health.v1.Health/Check
package main

import (
	"context"
	"flag"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:50051", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes, and then finishes the running calls.
func serve(ctx context.Context, ln net.Listener) error {
	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
	status := health.NewServer()
	healthpb.RegisterHealthServer(srv, status)
	reflection.Register(srv)
	wrapped := grpcadapter.Wrap(srv)
	if err := wrapped.Refusal(); err != nil {
		log.Print("grpc-go's own transport serves: ", err)
	}
	service := handover.Service{
		Parts: []handover.Part{{
			Name: "grpc", Listener: ln, Server: wrapped,
		}},
		Leaving: status.Shutdown, // so that load balancers choose another server
	}
	return service.Run(ctx)
}
