package loop

import (
	"bytes"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"golang.org/x/sys/unix"
)

// When Close returns, the descriptor is closed: the peer can tell at once. It
// waits for calls under way, even for those that take their time to leave.
func TestCloseWaits(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := overUnix.pair(t)
		defer unix.Close(b)
		f := newTestFD(t, g.Loop(0), a, Plain)
		inside, leave := make(chan struct{}), make(chan struct{})
		control := startErr(func() error {
			return f.RawControl(func(fd uintptr) {
				close(inside)
				<-leave
				if _, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
					t.Errorf("using the descriptor during Close: %v, want it to be open still", err)
				}
			})
		})
		<-inside
		closed := startErr(f.Close)
		eventually(t, "Close has begun", f.life.closed)
		if n, err := unix.Read(b, make([]byte, 1)); err != unix.EAGAIN {
			t.Errorf("peer reading before the last call left: got %d, %v, want %v", n, err, unix.EAGAIN)
		}
		select {
		case <-closed:
			t.Error("Close returned while a call was under way")
		default:
		}
		close(leave)
		if r := await(t, "Close", closed); r.err != nil {
			t.Errorf("Close: got %v, want nil", r.err)
		}
		if n, err := unix.Read(b, make([]byte, 1)); n != 0 || err != nil {
			t.Errorf("peer reading after Close: got %d, %v, want 0, nil: the end", n, err)
		}
		await(t, "RawControl", control)
	})
}

func TestCloseReturnsWhatTheKernelSaid(t *testing.T) {
	// The number is closed behind the descriptor's back, as a program that
	// confuses descriptors might do. No other test opens one meanwhile.
	g := newTestGroup(t, Config{Loops: 1})
	a, b := overUnix.pair(t)
	defer unix.Close(b)
	f := newTestFD(t, g.Loop(0), a, Plain)
	unix.Close(a)
	if err := f.Close(); err != syscall.EBADF {
		t.Errorf("Close: got %v, want %v", err, syscall.EBADF)
	}
}

// Descriptor numbers are reused at once. No call may read, or write, through a
// number that has become another's while his call was under way.
func TestCloseDoesNotMixUpDescriptors(t *testing.T) {
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		var running sync.WaitGroup
		for id := range 8 {
			running.Go(func() {
				for round := 0; round < 40 && !t.Failed(); round++ {
					mixUpRound(t, g, []transport{overTCP, overUnix}[id%2], byte('a'+id))
				}
			})
		}
		testnet.Within(t, "all workers", running.Wait)
	})
}

// mixUpRound sends one letter both ways over a connection, checks that it is the
// only one, and closes at any moment.
func mixUpRound(t *testing.T, g *Group, tr transport, letter byte) {
	a, b, err := tr.make()
	if err != nil {
		t.Errorf("making a connection: %v", err)
		return
	}
	var ends [2]*FD
	for i, sysfd := range []int{a, b} {
		if ends[i], err = g.LeastLoaded().NewFD(sysfd, tr.kind); err != nil {
			t.Errorf("NewFD: %v", err)
			return
		}
	}
	var running sync.WaitGroup
	untilClosed := func(what string, call func(p []byte) error) {
		running.Go(func() {
			p := bytes.Repeat([]byte{letter}, 64)
			for err := error(nil); err == nil; runtime.Gosched() {
				if err = call(p); err != nil && !slices.Contains([]error{ErrClosed, io.EOF, syscall.EPIPE, syscall.ECONNRESET}, err) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	for _, end := range ends {
		untilClosed("Write", func(p []byte) error { _, err := end.Write(p); return err })
		untilClosed("Read", func(p []byte) error {
			n, err := end.Read(p)
			if bytes.Count(p[:n], []byte{letter}) != n {
				t.Errorf("read %q on the connection of %q", p[:n], letter)
			}
			return err
		})
	}
	for range rand.IntN(30) {
		runtime.Gosched()
	}
	for _, end := range ends {
		if err := end.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	running.Wait()
}
