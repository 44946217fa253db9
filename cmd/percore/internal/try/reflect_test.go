package try

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
	"google.golang.org/protobuf/proto"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMessage: a message in JSON is encoded as the method's descriptor says, and an error says in words
// what can't be.
func TestMessage(t *testing.T) {
	testnet.NoLeaks(t)
	start := func(register func(*grpc.Server)) string {
		l := testnet.Listen(t, net.Listen, testnet.TCP4)
		srv := grpc.NewServer()
		register(srv)
		served := make(chan error, 1)
		go func() { served <- srv.Serve(l) }()
		t.Cleanup(func() {
			srv.Stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	plain := start(func(*grpc.Server) {})
	reflects := start(func(srv *grpc.Server) {
		healthpb.RegisterHealthServer(srv, health.NewServer())
		reflection.Register(srv)
	})
	want, err := proto.Marshal(&healthpb.HealthCheckRequest{Service: "here"})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ addr, method, text, err string }{
		{reflects, "/grpc.health.v1.Health/Check", `{"service": "here"}`, ""},
		{reflects, "/grpc.health.v1.Health/Check", `{"servant": "here"}`, "takes a grpc.health.v1.HealthCheckRequest"},
		{reflects, "/grpc.health.v1.Health/Watch", `{}`, "no such unary method, but /grpc.health.v1.Health/Check, "},
		{plain, "/grpc.health.v1.Health/Check", `{}`, "gRPC's reflection service"},
	} {
		got, err := Message(t.Context(), test.addr, test.method, test.text)
		switch {
		case test.err != "":
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s of %s: got %v, want %q in it", test.method, test.text, err, test.err)
			}
		case err != nil || !bytes.Equal(got, want):
			t.Errorf("%s of %s: got %q, %v; want %q", test.method, test.text, got, err, want)
		}
	}
}
