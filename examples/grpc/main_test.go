package main

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestServe(t *testing.T) {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln) }()

	client, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := healthpb.NewHealthClient(client).Check(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("got %v, %v, want SERVING", answer, err)
	}
	client.Close()
	if status, err := check(t.Context(), ln.Addr().String()); err != nil || status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("check: got %v, %v, want SERVING", status, err)
	}
	stop()
	if err := testnet.Receive(t, "the server's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
