package loop

import (
	"errors"
	"io"
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

// wantArmed checks that the callback has not been called yet.
func wantArmed(t testing.TB, f *FD, called <-chan error) {
	t.Helper()
	settle(t, f.loop)
	select {
	case err := <-called:
		t.Errorf("callback: called with %v, want it to be still armed", err)
	default:
	}
	if f.rd.state.Load()&armed == 0 {
		t.Error("no callback is armed any more, and none was called")
	}
}

// wantOver checks that the callback is disarmed and isn't called (again).
func wantOver(t testing.TB, f *FD, called <-chan error) {
	t.Helper()
	settle(t, f.loop)
	if f.CancelOnReadable() {
		t.Error("CancelOnReadable: got true, want false: the callback was called or cancelled")
	}
	select {
	case err := <-called:
		t.Errorf("callback: called once more, with %v", err)
	default:
	}
}

func TestOnReadableData(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		called := arm(t, f)
		wantArmed(t, f, called)
		mustWrite(t, peer, "data")
		wantCalled(t, called, nil)
		wantOver(t, f, called)
		// It was not read, so that a callback armed now is called too.
		called = arm(t, f)
		wantCalled(t, called, nil)
		wantOver(t, f, called)
		mustRead(t, f, "data")
	})
}

func TestOnReadableEnd(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		called := arm(t, f)
		peer.Close()
		wantCalled(t, called, nil)
		for range 2 { // the end stays
			if n, err := f.Read(make([]byte, 8)); n != 0 || err != io.EOF {
				t.Errorf("Read: got %d, %v, want 0, EOF", n, err)
			}
			called = arm(t, f)
			wantCalled(t, called, nil)
		}
		wantOver(t, f, called)
	})
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

func TestOnReadableDeadline(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		t.Run("future", func(t *testing.T) {
			called := arm(t, f)
			deadline := time.Now().Add(20 * time.Millisecond)
			if err := f.SetReadDeadline(deadline); err != nil {
				t.Fatalf("SetReadDeadline: %v", err)
			}
			wantCalled(t, called, os.ErrDeadlineExceeded)
			if early := time.Until(deadline); early > 0 {
				t.Errorf("the callback was called %v before the deadline", early)
			}
			wantOver(t, f, called)
		})
		t.Run("passed", func(t *testing.T) {
			if err := f.OnReadable(func(error) { t.Error("called") }); err != os.ErrDeadlineExceeded {
				t.Errorf("OnReadable past the deadline: got %v, want %v", err, os.ErrDeadlineExceeded)
			}
			settle(t, f.loop)
		})
		t.Run("past", func(t *testing.T) {
			_ = f.SetReadDeadline(time.Time{})
			called := arm(t, f)
			_ = f.SetReadDeadline(time.Unix(1, 0))
			wantCalled(t, called, os.ErrDeadlineExceeded)
			wantOver(t, f, called)
		})
		t.Run("moved", func(t *testing.T) {
			var called <-chan error
			for inTime := false; !inTime; {
				_ = f.SetReadDeadline(time.Time{})
				called = arm(t, f)
				soon := time.Now().Add(5 * time.Millisecond)
				_ = f.SetReadDeadline(soon)
				_ = f.SetReadDeadline(time.Time{})
				if inTime = time.Now().Before(soon); !inTime { // it may have passed: once more
					_ = f.SetReadDeadline(time.Unix(1, 0))
					wantCalled(t, called, os.ErrDeadlineExceeded)
				}
			}
			testnet.Eventually(t, "the wheel let go of the old deadline", func() bool { return f.rd.timer.Load() == nil })
			wantArmed(t, f, called)
			mustWrite(t, peer, "data")
			wantCalled(t, called, nil)
			wantOver(t, f, called)
		})
		t.Run("of writes", func(t *testing.T) {
			mustRead(t, f, "data")
			settle(t, f.loop)
			f.rd.state.And(^ready) // a read of a unix socket may leave a spurious readiness
			called := arm(t, f)
			_ = f.SetWriteDeadline(time.Unix(1, 0))
			wantArmed(t, f, called)
			f.CancelOnReadable()
		})
	})
}

func TestOnReadableClose(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
		called := arm(t, f)
		closeFD(t, f)
		wantCalled(t, called, ErrClosed)
		wantOver(t, f, called)
		if err := f.OnReadable(func(error) { t.Error("called") }); err != ErrClosed {
			t.Errorf("OnReadable after Close: got %v, want %v", err, ErrClosed)
		}
		settle(t, f.loop)
	})
}

func TestOnReadableTwice(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		called := arm(t, f)
		if err := f.OnReadable(func(error) { t.Error("the second callback is called") }); err != ErrArmed {
			t.Errorf("second OnReadable: got %v, want %v", err, ErrArmed)
		}
		wantArmed(t, f, called)
		if !f.CancelOnReadable() {
			t.Error("CancelOnReadable: got false, want true")
		}
		if f.CancelOnReadable() {
			t.Error("second CancelOnReadable: got true, want false")
		}
		mustWrite(t, peer, "data")
		awaitBits(t, f, ready)
		wantOver(t, f, called)
		wantCalled(t, arm(t, f), nil)
	})
}

// A readiness that was there before must not have the callback called by
// OnReadable itself, on its caller's goroutine.
func TestOnReadableNeverCallsBack(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		mustWrite(t, peer, "data")
		awaitBits(t, f, ready)
		t.Run("on a goroutine", func(t *testing.T) {
			release := holdLoop(t, f.loop)
			called := arm(t, f)
			if len(called) != 0 {
				t.Error("called while the loop was held")
			}
			release()
			wantCalled(t, called, nil)
		})
		t.Run("on the loop", func(t *testing.T) {
			early := make(chan bool, 1)
			second := make(chan error, 2)
			f.loop.Submit(func() {
				if err := f.OnReadable(func(err error) { second <- err }); err != nil {
					t.Errorf("OnReadable: %v", err)
				}
				early <- len(second) != 0
			})
			wantCalled(t, second, nil)
			if <-early {
				t.Error("called from within OnReadable")
			}
		})
		t.Run("in a callback", func(t *testing.T) {
			early := make(chan bool, 1)
			second := make(chan error, 2)
			if err := f.OnReadable(func(error) {
				if err := f.OnReadable(func(err error) { second <- err }); err != nil {
					t.Errorf("arming again: %v", err)
				}
				early <- len(second) != 0
			}); err != nil {
				t.Fatalf("OnReadable: %v", err)
			}
			wantCalled(t, second, nil)
			if <-early {
				t.Error("called from within OnReadable")
			}
		})
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

// A server without a goroutine per connection: the callback reads all there is
// and arms itself again.
func TestOnReadableServer(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		const messages = 200
		var buf [256]byte
		var serve func(err error)
		ended := make(chan struct{})
		serve = func(err error) {
			if err != nil {
				t.Errorf("callback: got %v, want nil", err)
				return
			}
			switch n := tryRead(t, f, buf[:]); {
			case n == 0:
				close(ended)
				return
			case n > 0:
				if _, err := f.Write(buf[:n]); err != nil { // never blocks: there is one message at a time
					t.Errorf("Write: %v", err)
				}
			default:
				// Nothing: the news was old. RawRead has to leave the descriptor
				// marked as ready, for it can't know that; a real server would read
				// in a goroutine. The mark must go, or this would spin.
				f.rd.state.And(^ready)
			}
			if err := f.OnReadable(serve); err != nil {
				t.Errorf("arming again: %v", err)
			}
		}
		if err := f.OnReadable(serve); err != nil {
			t.Fatalf("OnReadable: %v", err)
		}
		_ = peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
		for i := range messages {
			want := []byte{byte(i), byte(i >> 8), 'm'}
			got := make([]byte, len(want))
			if _, err := peer.Write(want); err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if _, err := io.ReadFull(peer, got); err != nil || string(got) != string(want) {
				t.Fatalf("message %d: got %q, %v, want %q", i, got, err, want)
			}
		}
		peer.Close()
		testnet.Receive(t, "the end of the stream", ended)
	})
}

// A callback may be armed while reads go on. If they leave something, it is
// called for it.
func TestOnReadableAgainstReads(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		buf := make([]byte, 64)
		for round := range 300 {
			var running sync.WaitGroup
			running.Go(func() { mustWrite(t, peer, "0123456789") })
			running.Go(func() {
				for range 1 + rand.IntN(3) {
					tryRead(t, f, make([]byte, 1))
				}
			})
			called := make(chan error, 2)
			running.Go(func() {
				for range rand.IntN(30) {
					runtime.Gosched()
				}
				if err := f.OnReadable(func(err error) { called <- err }); err != nil {
					t.Errorf("OnReadable: %v", err)
				}
			})
			running.Wait()
			// At least seven bytes are there.
			if err := testnet.Receive(t, "the callback", called); err != nil {
				t.Fatalf("round %d: callback: got %v, want nil", round, err)
			}
			for tryRead(t, f, buf) > 0 {
			}
			settle(t, f.loop)
			f.rd.state.And(^ready)
		}
	})
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

// Close comes in the very moment in which a callback is armed, or a deadline in
// the past is set.
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
