//go:build !linux || percore_net

package reactor

import (
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// A deferred function runs also if there is always another function to run.
func TestDeferUnderLoad(t *testing.T) {
	var s serial
	done, ended := false, make(chan int, 1)
	runs := 0
	var again func()
	again = func() {
		if runs++; done || runs > 1000 {
			ended <- runs
			return
		}
		s.Submit(again)
	}
	s.Submit(func() { s.Defer(func() { done = true }) })
	s.Submit(again)
	if n := testnet.Receive(t, "the functions", ended); n > 1000 {
		t.Error("the deferred function waits until no other is left")
	}
}
