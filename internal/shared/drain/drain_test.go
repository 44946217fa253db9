package drain

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestHooks: each function is called once, those that come late as well.
func TestHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Hooks
		var first, second, late atomic.Int32
		h.Add(func() { first.Add(1) })
		h.Add(func() { second.Add(1) })
		synctest.Wait()
		if first.Load() != 0 {
			t.Error("a function was called too early")
		}
		h.Call()
		h.Call()
		h.Add(func() { late.Add(1) })
		synctest.Wait()
		if first.Load() != 1 || second.Load() != 1 || late.Load() != 1 {
			t.Errorf("the functions were called %d, %d and %d times, want once", first.Load(), second.Load(), late.Load())
		}
	})
}
