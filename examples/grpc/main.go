// Command grpc is a grpc.Server with the health service on percore. Idle connections hold no read
// buffer, and with -fastpath calls are served past grpc-go's transport.
//
//	go run ./grpc -fastpath
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

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:50051", "address to listen on")
	fastPath := flag.Bool("fastpath", false, "serve calls past grpc-go's transport")
	flag.Parse()

	ln, err := grpcadapter.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln, *fastPath); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes, and then finishes the running calls.
func serve(ctx context.Context, ln net.Listener, fastPath bool) error {
	srv := grpc.NewServer(grpcadapter.ServerOptions()...)
	status := health.NewServer()
	healthpb.RegisterHealthServer(srv, status)
	reflection.Register(srv)
	var options []grpcadapter.WrapOption
	if fastPath {
		options = append(options, grpcadapter.FastPath())
	}
	wrapped := grpcadapter.Wrap(srv, options...)
	if err := wrapped.Refusal(); err != nil {
		log.Print("grpc-go's own transport serves: ", err)
	}
	service := handover.Service{
		Parts: []handover.Part{{
			Name: "grpc", Listener: ln, Server: handover.GRPC(wrapped),
		}},
		Leaving: status.Shutdown, // so that load balancers choose another server
	}
	return service.Run(ctx)
}
