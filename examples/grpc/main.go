// Command grpc is a grpc.Server with the health service on percore, whose calls are served past
// grpc-go's transport, and a client of such servers. Idle connections hold no goroutine and no buffer,
// at either end.
//
//	go run ./grpc
//	go run ./grpc -check localhost:50051
//	grpcurl -plaintext localhost:50051 grpc.health.v1.Health/Check
package main

import (
	"context"
	"flag"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:50051", "address to listen on")
	target := flag.String("check", "", "ask the server at this target for its health, instead of serving")
	flag.Parse()
	if *target != "" {
		status, err := check(context.Background(), *target)
		if err != nil {
			log.Fatal(err)
		}
		log.Print(status)
		return
	}

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln); err != nil {
		log.Fatal(err)
	}
}

// check asks a server for its health. Generated code takes grpcadapter's client as it takes grpc-go's.
func check(ctx context.Context, target string) (healthpb.HealthCheckResponse_ServingStatus, error) {
	conn, err := grpcadapter.NewClient(target, grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	reply, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return reply.GetStatus(), err
}

// serve serves until ctx ends or a signal comes, and then finishes the running calls.
func serve(ctx context.Context, ln net.Listener) error {
	srv := grpc.NewServer()
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
