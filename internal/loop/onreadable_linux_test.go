package loop

import (
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// arm arms a callback and returns the channel for its errors.
func arm(t testing.TB, f *FD) <-chan error {
	t.Helper()
	called := make(chan error, 2) // two, so that one call too many is seen and doesn't block the loop
	if err := f.OnReadable(func(err error) { called <- err }); err != nil {
		t.Fatalf("OnReadable: got %v, want nil", err)
	}
	return called
}

// wantCalled waits for the callback and checks its error.
func wantCalled(t testing.TB, called <-chan error, want error) {
	t.Helper()
	if got := testnet.Receive(t, "the callback", called); got != want {
		t.Errorf("callback: got %v, want %v", got, want)
	}
}

// Arming a callback must not take away the next read's data, an error least of
// all: a stream cut short would look as if it were complete.
func TestOnReadableReset(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, before := range []bool{true, false} {
			f, peer := newPair(t, g.Loop(0), overTCP)
			reset := func() {
				_ = peer.(*net.TCPConn).SetLinger(0)
				peer.Close()
				awaitBits(t, f, ready)
			}
			if before {
				reset()
			}
			called := arm(t, f)
			if !before {
				reset()
			}
			wantCalled(t, called, nil)
			if _, err := f.Read(make([]byte, 8)); err != syscall.ECONNRESET {
				t.Errorf("Read, reset before arming %t: got %v, want %v", before, err, syscall.ECONNRESET)
			}
		}
	})
}

// A readiness that was there before must not have the callback called by
// OnReadable itself, on its caller's goroutine.
func TestOnReadableNeverCallsBack(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		mustWrite(t, peer, "data")
		awaitBits(t, f, ready)
		for name, on := range map[string]func(arms func()){
			"a goroutine": func(arms func()) {
				defer holdLoop(t, f.loop)()
				arms()
			},
			"the loop": func(arms func()) { f.loop.Submit(arms) },
			"in a callback": func(arms func()) {
				if err := f.OnReadable(func(error) { arms() }); err != nil {
					t.Fatalf("OnReadable: %v", err)
				}
			},
		} {
			called, early := make(chan error, 2), make(chan bool, 1)
			on(func() {
				if err := f.OnReadable(func(err error) { called <- err }); err != nil {
					t.Errorf("OnReadable: %v", err)
				}
				early <- len(called) != 0
			})
			wantCalled(t, called, nil)
			if <-early {
				t.Errorf("%s: called from within OnReadable", name)
			}
		}
	})
}

// tryRead reads without waiting: n is -1 if there is nothing.
func tryRead(t testing.TB, f *FD, p []byte) (n int) {
	err := f.RawRead(func(fd uintptr) bool {
		var err error
		if n, err = unix.Read(int(fd), p); err != nil && err != unix.EAGAIN {
			t.Errorf("read: %v", err)
		}
		return true
	})
	if err != nil {
		t.Errorf("RawRead: %v", err)
		return 0
	}
	return n
}

// The edge comes in the very moment in which a callback is armed: it must be
// called, by the one or the other.
func TestOnReadableAgainstEdge(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overTCP)
	mustWrite(t, peer, "data") // that is not read
	awaitBits(t, f, ready)
	called := make(chan error, 1)
	callback := func(err error) { called <- err }
	collide(t, 20_000,
		func() { f.rd.state.Store(0) },
		func() {
			if err := f.OnReadable(callback); err != nil {
				t.Errorf("OnReadable: %v", err)
			}
		},
		func() { f.onReady(Readable, 0) },
		func(round int) bool {
			if err := testnet.Receive(t, "the callback", called); err != nil {
				t.Errorf("round %d: callback: got %v, want nil", round, err)
			}
			return !t.Failed()
		})
}

// Close comes in the very moment in which a callback is armed, or a deadline in the past is set.
func TestOnReadableAgainstInterrupt(t *testing.T) {
	for _, deadline := range []bool{false, true} {
		g := newTestGroup(t, Config{Loops: 1})
		f, _ := newPair(t, g.Loop(0), overTCP)
		if err := f.life.incref(); err != nil { // so that the last call does not destroy it
			t.Fatal(err)
		}
		called := make(chan error, 1)
		callback := func(err error) { called <- err }
		want := ErrClosed
		if deadline {
			want = os.ErrDeadlineExceeded
		}
		collide(t, 20_000,
			func() {
				f.life.word.And(^lifeClosed)
				f.rd.deadline.Store(noDeadline)
			},
			func() {
				if err := f.OnReadable(callback); err != nil {
					called <- err // then it is not called
				}
			},
			func() {
				if deadline {
					_ = f.SetReadDeadline(time.Unix(1, 0))
					return
				}
				f.life.word.Or(lifeClosed) // Close's steps, without those that can't be undone
				f.rd.interrupt(f)
			},
			func(round int) bool {
				if err := testnet.Receive(t, "the callback", called); err != want {
					t.Errorf("round %d: got %v, want %v", round, err, want)
				}
				return !t.Failed()
			})
		f.life.word.And(^lifeClosed)
		f.decref()
	}
}

// armCount counts the ends of the callbacks armed on a descriptor.
type armCount struct{ armed, called, cancelled atomic.Int64 }

// In any race an armed callback is called once or cancelled once.
func TestOnReadableOnce(t *testing.T) {
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			t.Run(tr.name, func(t *testing.T) {
				for range 100 {
					onReadableRound(t, g, tr)
				}
			})
		}
	})
}

// onReadableRound arms a callback, again and again, while it is being set off
// in every way there is, until the descriptor is closed.
func onReadableRound(t *testing.T, g *Group, tr transport) {
	l := g.LeastLoaded()
	a, b := tr.pair(t)
	f, err := l.NewFD(a, tr.kind)
	if err != nil {
		t.Fatalf("NewFD: %v", err)
	}
	peer := netConn(t, b)
	defer peer.Close()
	var count armCount
	var expiredOnce atomic.Bool
	var again func() error
	again = func() error {
		var once atomic.Int32
		err := f.OnReadable(func(err error) {
			count.called.Add(1)
			switch {
			case once.Add(1) > 1:
				t.Errorf("the callback is called again, with %v", err)
			case err == nil:
			case errors.Is(err, os.ErrDeadlineExceeded) && expiredOnce.Load():
			case errors.Is(err, ErrClosed) && f.life.closed():
			default:
				t.Errorf("the callback is called with %v for no reason", err)
			}
			if rand.IntN(2) == 0 {
				_ = again()
			}
		})
		if err == nil {
			count.armed.Add(1)
		} else if err != ErrArmed && err != ErrClosed && !(err == errTimeout && expiredOnce.Load()) {
			t.Errorf("OnReadable: got %v, want nil, ErrArmed, ErrClosed or, after a deadline, a timeout", err)
		}
		return err
	}
	_ = again()
	var running sync.WaitGroup
	several := func(do func()) {
		running.Go(func() {
			for range rand.IntN(20) {
				do()
				if rand.IntN(3) == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	several(func() { _, _ = peer.Write([]byte("x")) })
	several(func() { _ = again() })
	several(func() {
		if f.CancelOnReadable() {
			count.cancelled.Add(1)
		}
	})
	several(func() {
		expiredOnce.Store(true)
		_ = f.SetReadDeadline(time.Unix(1, 0))
		_ = f.SetReadDeadline(time.Time{})
	})
	several(func() {
		_ = f.RawRead(func(fd uintptr) bool { // a read that does not wait
			_, _ = unix.Read(int(fd), make([]byte, 4))
			return true
		})
	})
	running.Go(func() {
		for range rand.IntN(20) {
			runtime.Gosched()
		}
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	testnet.Within(t, "a round", running.Wait)
	settle(t, l)
	if armed, called, cancelled := count.armed.Load(), count.called.Load(), count.cancelled.Load(); called+cancelled != armed {
		t.Fatalf("%d armed: %d called + %d cancelled, want as many", armed, called, cancelled)
	}
	if f.CancelOnReadable() {
		t.Fatal("a callback is still armed after Close")
	}
}
