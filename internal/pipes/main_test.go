package pipes_test

import (
	"testing"

	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestDrainWhenEmpty runs on every platform: having nothing to drain is not an error.
func TestDrainWhenEmpty(t *testing.T) {
	pipes.Drain()
	pipes.Drain()
	if open, idle := pipes.Count(); open != 0 || idle != 0 {
		t.Errorf("Count: got %d open and %d idle, want none", open, idle)
	}
}
