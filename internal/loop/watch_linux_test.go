package loop

import (
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// watching is an EventHandler that passes events on.
type watching chan Readiness

func (w watching) OnEvent(r Readiness) { w <- r }

// await waits for an event with all of r.
func (w watching) await(t *testing.T, r Readiness) {
	t.Helper()
	for testnet.Receive(t, "an event", w)&r != r {
	}
}

// A descriptor on which a goroutine waits can't be watched: the loop would wait for it.
func TestWatchBusy(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newFDPair(t, g.Loop(0), g.Loop(0), overTCP)
	testnet.GoBlocked(t, "Read", func() { _, _ = f.Read(make([]byte, 1)) })
	var h EventHandler = make(watching, 1)
	if err := f.Watch(&h); err != ErrBusy {
		t.Errorf("got %v, want %v", err, ErrBusy)
	}
	closeFD(t, f)
	closeFD(t, peer)
}

// A descriptor has one owner, who is told to try again after the user has had the descriptor and
// changed it.
func TestWatchRaw(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newFDPair(t, g.Loop(0), g.Loop(0), overTCP)
	events := make(watching, 100)
	var h EventHandler = events
	if err := f.Watch(&h); err != nil {
		t.Fatal(err)
	}
	if err := f.Watch(&h); err != ErrArmed {
		t.Errorf("a second Watch: got %v, want %v", err, ErrArmed)
	}
	if err := f.OnReadable(func(error) {}); err != ErrArmed {
		t.Errorf("OnReadable: got %v, want %v", err, ErrArmed)
	}
	if err := f.RawControl(func(uintptr) {}); err != nil {
		t.Fatal(err)
	}
	events.await(t, Readable|Writable)
	closeFD(t, f)
	closeFD(t, peer)
	if err := f.Watch(&h); err != ErrClosed {
		t.Errorf("Watch after Close: got %v, want %v", err, ErrClosed)
	}
}

// TestReadNow: ReadNow finds what the kernel has, although the loop, which is not polled here, has
// not reported it.
func TestReadNow(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newFDPair(t, g.Loop(0), g.Loop(0), overTCP)
		p := make([]byte, 100)
		for round := range 1000 {
			_, _ = peer.Write([]byte("ping"))
			if n, err := f.ReadNow(p); n != 4 || err != nil {
				t.Fatalf("round %d: got %d, %v, want 4", round, n, err)
			}
			if n, err := f.ReadNow(p); n != 0 || err != nil {
				t.Fatalf("round %d, ReadNow of nothing: got %d, %v, want 0", round, n, err)
			}
		}
		_ = peer.Shutdown(unix.SHUT_WR)
		if n, err := f.ReadNow(p); n != 0 || err != io.EOF {
			t.Errorf("ReadNow at the end: got %d, %v, want EOF", n, err)
		}
	})
}
