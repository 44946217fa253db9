package line

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

func nothing() uint64 { return 0 }

// TestCrowd: a goroutine that yields to one that computes has to wait for its turn, and from then
// on yields every time.
func TestCrowd(t *testing.T) {
	testnet.BesideComputing(func() {
		var l Line
		for end := time.Now().Add(testnet.HangTimeout); !l.Yield(nothing) || !l.Crowded(); {
			if time.Now().After(end) {
				t.Fatal("the processors are not crowded beside a goroutine that computes")
			}
		}
		if l.tries.Load() != triesMax {
			t.Errorf("got %d tries, want %d", l.tries.Load(), triesMax)
		}
	})
}

// TestOwnWork: processors that are busy with the caller's own kind of work are not crowded, however
// long the turn takes.
func TestOwnWork(t *testing.T) {
	testnet.BesideComputing(func() {
		var l Line
		work := uint64(0)
		served := func() uint64 {
			work += 1 << 40
			return work
		}
		for range 3 * triesMax {
			if l.Yield(served) || l.Stand(served) || l.Crowded() {
				t.Fatal("got true, want false: others did work of the caller's kind")
			}
		}
	})
}

// TestServedGoesBack: without computing goroutines, a count of work that goes back is no sign of a
// crowd. (A turn may be long on a machine that does other things; then the test starts over.)
func TestServedGoesBack(t *testing.T) {
	testnet.Eventually(t, "a turn that is not long", func() bool {
		var l Line
		work := uint64(100)
		return !l.Stand(func() uint64 {
			work--
			return work
		})
	})
}

// TestTaken: only one goroutine stands in line.
func TestTaken(t *testing.T) {
	var l Line
	l.tries.Store(triesMax)
	l.taken.Store(true)
	if l.Yield(nothing) || l.tries.Load() != triesMax {
		t.Errorf("Yield behind another: got %d tries, want %d, and false", l.tries.Load(), triesMax)
	}
}

// TestFree: without a crowd a goroutine yields now and then. (If it had to wait because the machine
// was busy with something else, the test starts over.)
func TestFree(t *testing.T) {
	testnet.Eventually(t, "the tries are used up", func() bool {
		var l Line
		for i := range int32(3 * triesMax) {
			if l.Yield(nothing) {
				return false
			}
			if want := -((i + 1) % triesMax); l.tries.Load() != want {
				t.Errorf("after %d calls: got %d tries, want %d", i+1, l.tries.Load(), want)
			}
		}
		return true
	})
}

// TestRanOut: work of the caller's kind that took its time, and ran out, doesn't hide that others
// compute from then on.
func TestRanOut(t *testing.T) {
	testnet.BesideComputing(func() {
		var l Line
		var work atomic.Uint64
		testnet.Eventually(t, "a turn that is long", func() bool {
			go func() {
				work.Add(1 << 40)
				l.RanOut(work.Load)
			}()
			return l.Stand(work.Load)
		})
		if l.RanOut(work.Load); l.since.Load() != 0 {
			t.Error("got a mark, want none: no goroutine stands in line")
		}
	})
}

// TestSuspect: after a long turn the next Yield stands in line, after a short one it need not.
func TestSuspect(t *testing.T) {
	for _, tt := range []struct {
		name        string
		since       int64
		tries, want int32
	}{
		{"short turn", monotime.Now() + int64(time.Hour), 0, 0},
		{"long turn", monotime.Now() - int64(longTurn), 0, 1 - triesMax},
		{"long turn, crowded", monotime.Now() - int64(longTurn), 1, 1},
	} {
		var l Line
		l.tries.Store(tt.tries)
		if l.Suspect(tt.since); l.tries.Load() != tt.want {
			t.Errorf("%s: got %d tries, want %d", tt.name, l.tries.Load(), tt.want)
		}
	}
}
