package main

import (
	"net/http"
	"syscall"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/percore/percore/internal/testnet"
)

// For -drain-delay the server says that it isn't ready, and serves new connections all the same.
func TestServeDrainDelay(t *testing.T) {
	s := startServers(t, "-drain-delay", "1h")
	if resp, body := s.fetch("GET", "/ready", nil, nil); resp.StatusCode != http.StatusOK {
		t.Errorf("/ready: got %s, %q", resp.Status, body)
	}
	health := grpc_health_v1.NewHealthClient(s.grpc)
	watch, err := health.Watch(s.ctx, new(grpc_health_v1.HealthCheckRequest))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	if got, err := watch.Recv(); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("the health: got %v, %v, want SERVING", got, err)
	}
	s.signal(syscall.SIGTERM)
	testnet.Eventually(t, "/ready to fail", func() bool {
		s.http.CloseIdleConnections()
		resp, _ := s.fetch("GET", "/ready", nil, nil)
		return resp.StatusCode == http.StatusServiceUnavailable
	})
	if got, err := watch.Recv(); err != nil || got.Status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("the health: got %v, %v, want NOT_SERVING", got, err)
	}
	s.http.CloseIdleConnections()
	if resp, body := s.fetch("GET", "/echo", nil, nil); resp.StatusCode != http.StatusOK || resp.Close {
		t.Errorf("a new connection: got %s, %q, Connection: close %t", resp.Status, body, resp.Close)
	}
	s.signal(syscall.SIGTERM) // for an operator who does not want to wait
	s.wait()
	if status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signal() != syscall.SIGTERM {
		t.Errorf("got %v, want the process killed by the second signal", s.cmd.ProcessState)
	}
}
