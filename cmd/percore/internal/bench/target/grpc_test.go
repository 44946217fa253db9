package target

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// TestGRPCAdapter calls the gRPC server of each engine, plain, through the adapter and
// NewServer's, which shows in whose buffers it receives.
func TestGRPCAdapter(t *testing.T) {
	for _, e := range []Engine{
		{Name: EngineNet}, {Name: EnginePercore}, {Name: EngineNet, Adapter: true}, {Name: EnginePercore, Adapter: true},
		{Name: EnginePercore, Adapter: true, FastPath: true}, {Name: EnginePercore, NewServer: true},
	} {
		l, err := listen(e)
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		run, err := newServer(Spec{App: AppGRPC, Engine: e})
		if err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		done := make(chan error, 1)
		go func() { done <- run.Serve(l) }()
		before := pool.ReadStats().Gets
		if err := callEcho(t, l.Addr().String(), 10_000); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
		if got := pool.ReadStats().Gets > before; got != (e.Adapter || e.NewServer) {
			t.Errorf("%+v: received in buffers of percore's: got %t", e, got)
		}
		l.Close()
		testnet.Receive(t, "the server ending", done)
	}
}

// callEcho makes one call.
func callEcho(t *testing.T, addr string, size int) error {
	cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	return cc.Invoke(ctx, EchoUnary, wrapperspb.Bytes(make([]byte, size)), new(wrapperspb.BytesValue))
}
