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
	if n := pipes.Idle(); n != 0 {
		t.Errorf("Idle: got %d, want 0", n)
	}
}
