package counters

import (
	"runtime"
	"slices"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

type kind uint8

const (
	ends kind = iota
	begins
	kinds
)

// TestRegister: the counters of a server are in the sums while it lives, and when the garbage collector
// has taken it.
func TestRegister(t *testing.T) {
	r := NewRegister(kinds)
	for range 2 {
		s := new([100]byte)
		n := NewSet(2, kinds)
		Enlist(r, s, n)
		n.Cells[0].Add(ends, 1)
		n.Cells[0].Add(begins, 2)
		n.Cells[1].Add(begins, 3)
		if got := n.Sums(); !slices.Equal(got, []int64{1, 5}) {
			t.Errorf("got the sums %d of a server, want 1 and 5", got)
		}
		if got := r.Sums()[begins]; got < 5 {
			t.Errorf("got %d in the register, want 5 or more", got)
		}
		runtime.KeepAlive(s)
	}
	testnet.Eventually(t, "the servers are collected", func() bool {
		runtime.GC()
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.of) == 0
	})
	if got := r.Sums(); !slices.Equal(got, []int64{2, 10}) {
		t.Errorf("got the sums %d of two servers that are no more, want 2 and 10", got)
	}
}
