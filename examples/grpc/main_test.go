package main

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestServe(t *testing.T) {
	for _, fastPath := range []bool{false, true} {
		t.Run(fmt.Sprint("fastpath=", fastPath), func(t *testing.T) { testServe(t, fastPath) })
	}
}

func testServe(t *testing.T, fastPath bool) {
	ln := testnet.Listen(t, grpcadapter.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln, fastPath) }()

	client, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := healthpb.NewHealthClient(client).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v, want SERVING", answer, err)
	}
	client.Close()
	stop()
	if err := testnet.Receive(t, "the server's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
