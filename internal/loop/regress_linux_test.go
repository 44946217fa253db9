package loop

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// The tests in this file are for mistakes that were made once.

// A hang-up that is signalled just when a read uses up older news must not be lost with it: no
// other edge follows, so the next read would never see the end of the stream.
func TestHangupDuringTake(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	a, b := overUnix.pair(t)
	defer unix.Close(b)
	f := newTestFD(t, g.Loop(0), a, TCP) // TCP's promise about short reads holds here too, without ancillary data
	defer holdLoop(t, g.Loop(0))()       // this test plays the loop
	p := make([]byte, 64)
	collide(t, 50_000,
		func() {
			if n, err := unix.Write(b, []byte("data")); n != 4 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			f.rd.state.Store(ready) // for the data
		},
		func() {
			n, err := f.Read(p)
			if got := string(p[:n]); got != "data" || err != nil {
				t.Errorf("Read: got %q, %v, want \"data\", nil", got, err)
			}
		},
		func() { f.onReady(Readable|Hangup, 0) },
		func(round int) bool {
			if st := f.rd.state.Load(); st&(ready|hangup) != ready|hangup {
				t.Errorf("round %d: state is %04b: the next read would wait; want it to find the end", round, st)
			}
			return !t.Failed()
		})
}

// The edge of a hang-up may come after a system call found nothing and before
// the call waits: it must not be taken for an old one.
func TestHangupAfterEAGAIN(t *testing.T) {
	f, peer := newPair(t, newTestGroup(t, Config{Loops: 1}).Loop(0), overTCP)
	calls := 0
	r := await(t, "RawRead", startErr(func() error {
		return f.RawRead(func(fd uintptr) bool {
			calls++
			_, err := unix.Read(int(fd), make([]byte, 8))
			if err == unix.EAGAIN {
				peer.Close()
				awaitBits(t, f, hangup)
			}
			return err == nil
		})
	}))
	if r.err != nil || calls != 2 {
		t.Errorf("RawRead: got %d calls, %v, want 2, for EAGAIN and for the end", calls, r.err)
	}
}

// A callback armed while a read is under way must hear of the bytes that the read leaves behind.
func TestOnReadableDuringRead(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	for _, tr := range []transport{overTCP, overUnix} {
		t.Run(tr.name, func(t *testing.T) {
			f, peer := newPair(t, g.Loop(0), tr)
			mustWrite(t, peer, "data")
			awaitBits(t, f, ready)
			settle(t, g.Loop(0))
			called := make(chan error, 1)
			err := f.RawRead(func(uintptr) bool {
				if err := f.OnReadable(func(err error) { called <- err }); err != nil {
					t.Errorf("OnReadable: %v", err)
				}
				return true // and "data" is still there
			})
			if err != nil {
				t.Fatalf("RawRead: %v", err)
			}
			if err := testnet.Receive(t, "the callback", called); err != nil {
				t.Errorf("callback: got %v, want nil", err)
			}
		})
	}
}

// Everything that the user may do with the raw descriptor may be done with a duplicate too:
// make a short read mean nothing, for instance.
func TestDupExposes(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	look := func(f *FD) error { return f.RawControl(func(uintptr) {}) }
	dup := func(f *FD) error {
		fd, err := f.Dup()
		if err == nil {
			syscall.Close(fd)
		}
		return err
	}
	for name, calls := range map[string][]func(f *FD) error{
		"Dup, RawControl": {dup, look},
		"RawControl, Dup": {look, dup},
	} {
		f, _ := newPair(t, g.Loop(0), overTCP)
		for _, call := range calls {
			if err := call(f); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if st := f.rd.state.Load(); st&(shortReadUnreliable|ready) != shortReadUnreliable|ready {
			t.Errorf("%s: state is %04b: the next read relies on an edge, want not", name, st)
		}
	}
}

// OnReadable asks by poll(2), which heeds SO_RCVLOWAT. A read doesn't, and must not
// wait for the same as poll.
func TestReadBelowLowWaterMark(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overTCP)
	if err := f.RawWrite(func(fd uintptr) bool {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 100); err != nil {
			t.Errorf("SO_RCVLOWAT: %v", err)
		}
		return true
	}); err != nil {
		t.Fatalf("RawWrite: %v", err)
	}
	mustWrite(t, peer, "hello")
	testnet.Eventually(t, "the bytes' arrival", func() bool {
		n, err := unix.IoctlGetInt(int(f.sysfd), unix.SIOCINQ)
		return n == 5 && err == nil
	})
	arm(t, f)
	f.CancelOnReadable()
	mustRead(t, f, "hello")
}

// A callback armed after the deadline was moved must not be told that the old one has passed.
func TestOnReadableNotToldOfOldDeadline(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overTCP)
	// The wheel finds the deadline due: first it marks it as expired, …
	f.rd.deadline.Store(expired)
	// … in between the user moves it and arms, …
	if err := f.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatalf("SetReadDeadline: %v", err)
	}
	called := make(chan error, 1)
	if err := f.OnReadable(func(err error) { called <- err }); err != nil {
		t.Fatalf("OnReadable: %v", err)
	}
	// … then it wakes the waiter.
	f.rd.interrupt(f)
	settle(t, g.Loop(0))
	if !f.CancelOnReadable() {
		err := testnet.Receive(t, "the callback", called)
		t.Errorf("callback was called with %v an hour before the deadline", err)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("nor is that a timeout")
		}
	}
}

// A goroutine that polls the loop itself, since it waits for the only descriptor, is not on its
// channel: a waker without an event has to tell it so, or it sleeps on, and Close waits for it.
func TestWakeOfWhoPolls(t *testing.T) {
	wakes := map[string]func(t *testing.T, f *FD){
		"RawControl that changes the socket": func(t *testing.T, f *FD) {
			if err := f.RawControl(func(fd uintptr) {
				if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 2); err != nil {
					t.Errorf("SO_RCVLOWAT: %v", err)
				}
			}); err != nil {
				t.Errorf("RawControl: %v", err)
			}
		},
		"look for something to read": func(_ *testing.T, f *FD) { f.rd.wake(f, ready) },
	}
	for name, wake := range wakes {
		t.Run(name, func(t *testing.T) {
			f, _ := newLonePair(t, overTCP)
			read := make(chan error, 1)
			testnet.GoBlocked(t, "Read", func() {
				_, err := f.Read(make([]byte, 1))
				read <- err
			})
			eventually(t, "the reader polls", func() bool { return f.loop.owner.leader.Load() == &f.rd })
			wake(t, f)
			testnet.Within(t, "Close", func() { _ = f.Close() })
			if err := testnet.Receive(t, "Read", read); err != ErrClosed {
				t.Errorf("Read: got %v, want %v", err, ErrClosed)
			}
		})
	}
}
