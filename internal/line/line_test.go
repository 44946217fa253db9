package line

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestCrowd: beside a goroutine that computes, on the only processor, a goroutine that yields has to
// wait for its turn, and yields from then on each time.
func TestCrowd(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var stop atomic.Bool
	defer stop.Store(true)
	go func() {
		for !stop.Load() {
		}
	}()
	var l Line
	for end := time.Now().Add(testnet.HangTimeout); !l.Yield(); {
		if time.Now().After(end) {
			t.Fatal("Yield: got false each time, want true beside a goroutine that computes")
		}
	}
	if l.tries != triesMax {
		t.Errorf("got %d tries, want %d", l.tries, triesMax)
	}
}

// TestTaken: only one goroutine stands in line.
func TestTaken(t *testing.T) {
	l := Line{tries: triesMax}
	l.taken.Store(true)
	if l.Yield() || l.tries != triesMax {
		t.Errorf("Yield behind another: got %d tries, want %d, and false", l.tries, triesMax)
	}
}

// TestFree: without a crowd a goroutine yields now and then. (One that has had to wait, on a machine
// that does other things, begins anew.)
func TestFree(t *testing.T) {
	testnet.Eventually(t, "the tries are used up", func() bool {
		var l Line
		for i := range 3 * triesMax {
			if l.Yield() {
				return false
			}
			if want := -((i + 1) % triesMax); l.tries != want {
				t.Errorf("after %d calls: got %d tries, want %d", i+1, l.tries, want)
			}
		}
		return true
	})
}
