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
	read := func() map[string]float64 {
		values := make(map[string]float64)
		for _, a := range percore.ReadStats().Adapters {
			if a.Adapter == "grpc" {
				for _, f := range a.Metrics {
					values[f.Name+f.Of] = f.Value
				}
			}
		}
		return values
	}
	before := read()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	settings{}.wrap(a)
	after := read()
	if len(after) != 4+3+17+2 || after["connections_totalforeign"] < before["connections_totalforeign"]+1 {
		t.Errorf("got %v, then %v with one connection more, want it counted", before, after)
	}
}
