package pipes_test

import (
	"testing"

	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestDrainWhenEmpty is for every platform: nothing to do is no mistake.
func TestDrainWhenEmpty(t *testing.T) {
	pipes.Drain()
	pipes.Drain()
	if open, idle := pipes.Count(); open != 0 || idle != 0 {
		t.Errorf("Count: got %d open and %d idle, want none", open, idle)
	}
}
