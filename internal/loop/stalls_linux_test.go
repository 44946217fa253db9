package loop

import (
	"io"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

var testStalls, otherStalls = NewStalls(), NewStalls()

// TestStalls: a write counts while it waits, where its descriptor says, however the wait ends; and its
// number leaves the other bits of the state alone.
func TestStalls(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	count := func(s *Stalls) int {
		n, _ := s.Count(0)
		return n
	}
	for _, test := range []struct {
		name string
		end  func(f *FD, peer io.Reader)
	}{
		{"the peer reads", func(f *FD, peer io.Reader) { go io.Copy(io.Discard, peer) }},
		{"a deadline", func(f *FD, peer io.Reader) { f.SetWriteDeadline(time.Unix(1, 0)) }},
		{"Close", func(f *FD, peer io.Reader) { closeFD(t, f) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, peer := newPair(t, g.Loop(0), overTCP)
			f.CountStalls(otherStalls)
			f.CountStalls(testStalls)
			written := make(chan error, 1)
			go func() {
				_, err := f.Write(make([]byte, 16<<20))
				written <- err
			}()
			testnet.Eventually(t, "the write waits", func() bool { return count(testStalls) == 1 })
			if all, long := testStalls.Count(time.Hour); all > 1 || long != 0 {
				t.Errorf("got %d, %d of them for an hour, want 1 and none", all, long)
			}
			if n := count(otherStalls); n != 0 {
				t.Errorf("got %d in the other, want none", n)
			}
			test.end(f, peer)
			testnet.Receive(t, "Write", written)
			if n := count(testStalls); n != 0 {
				t.Errorf("got %d when Write has returned, want none", n)
			}
		})
	}
	f, _ := newPair(t, g.Loop(0), overTCP)
	f.CountStalls(testStalls)
	f.CountStalls(nil)
	testnet.GoBlocked(t, "Write", func() { f.Write(make([]byte, 16<<20)) })
	testnet.Eventually(t, "the write waits", func() bool { return f.wr.state.Load()&waiting != 0 })
	if n := count(testStalls); n != 0 {
		t.Errorf("got %d after CountStalls(nil), want none", n)
	}
	closeFD(t, f)
}
