package grpcadapter

import (
	"net"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestMetrics: percore.ReadStats returns this package's metrics.
func TestMetrics(t *testing.T) {
	testnet.NoLeaks(t)
	read := func(adapter string) map[string]float64 {
		values := make(map[string]float64)
		for _, a := range percore.ReadStats().Adapters {
			if a.Adapter == adapter {
				for _, f := range a.Metrics {
					values[f.Name+f.Of] = f.Value
				}
			}
		}
		return values
	}
	before := read("grpc")
	foreign := testnet.Listen(t, net.Listen, testnet.TCP4)
	startOwn(t, foreign)
	if err := callUnary(callContext(t), dialClient(t, foreign), nil); err != nil {
		t.Fatal(err)
	}
	after := read("grpc")
	if len(after) != 3+4+17+2 || after["connections_totalforeign"] < before["connections_totalforeign"]+1 {
		t.Errorf("got %v, then %v with one connection more, want it counted", before, after)
	}

	lis := serveEcho(t)
	before = read("grpc_client")
	if err := callUnary(callContext(t), dialClient(t, lis), nil); err != nil {
		t.Fatal(err)
	}
	after = read("grpc_client")
	for _, name := range []string{"started_calls_total", "calls_totalOK", "messages_totalsent", "messages_totalreceived"} {
		if after[name] < before[name]+1 {
			t.Errorf("%s: got %v, then %v with one call more, want it counted", name, before[name], after[name])
		}
	}
}
