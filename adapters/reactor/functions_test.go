package reactor

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/percore/percore/internal/testnet"
)

// TestGoInBubble: a function runs in the bubble of the goroutine that calls Go, and the pool's
// goroutines stay outside.
func TestGoInBubble(t *testing.T) {
	testnet.NoLeaks(t)
	s, _ := serve(t, &handler{})
	c, _ := attach(t, s)
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Bool
		if err := c.Go(func() { ran.Store(true) }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !ran.Load() {
			t.Error("the function did not run in the bubble")
		}
	})
	for range 2 {
		ran := make(chan bool, 1)
		if err := c.Go(func() { ran <- true }); err != nil {
			t.Fatal(err)
		}
		testnet.Receive(t, "a function outside", ran)
	}
}
