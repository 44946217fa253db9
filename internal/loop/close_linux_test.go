package loop

import (
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// When Close returns, the descriptor is closed: the peer can tell at once. It
// waits for calls under way, even for those that take their time to leave.
func TestCloseWaits(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := unixPair(t)
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
	a, b := unixPair(t)
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
		for _, tr := range []transport{overTCP, overUnix} {
			t.Run(tr.name, func(t *testing.T) {
				rounds := 60
				if tr.kind == TCP {
					rounds = 20 // connecting takes longer
				}
				var running sync.WaitGroup
				for id := range 8 {
					running.Go(func() {
						for range rounds {
							if !mixUpRound(t, g, tr, byte('a'+id)) {
								return
							}
						}
					})
				}
				testnet.Within(t, "all workers", running.Wait)
			})
		}
	})
}

// mixUpRound sends one letter both ways over a connection, checks that it is the
// only one, and closes at any moment.
func mixUpRound(t *testing.T, g *Group, tr transport, letter byte) (ok bool) {
	a, b, err := tr.make()
	if err != nil {
		t.Errorf("making a connection: %v", err)
		return false
	}
	ends := make([]*FD, 2)
	for i, sysfd := range []int{a, b} {
		if ends[i], err = g.LeastLoaded().NewFD(sysfd, tr.kind); err != nil {
			t.Errorf("NewFD: %v", err)
			return false
		}
	}
	var failed atomic.Bool
	fail := func(format string, args ...any) {
		failed.Store(true)
		t.Errorf(format, args...)
	}
	p := make([]byte, 64)
	for i := range p {
		p[i] = letter
	}
	var running sync.WaitGroup
	for _, end := range ends {
		running.Go(func() {
			for {
				if _, err := end.Write(p); err != nil {
					if err != ErrClosed && err != syscall.EPIPE && err != syscall.ECONNRESET {
						fail("Write: %v", err)
					}
					return
				}
				runtime.Gosched() // or it would keep its processor from the others for as long as it may
			}
		})
		running.Go(func() {
			got := make([]byte, 100)
			for {
				n, err := end.Read(got)
				for _, c := range got[:n] {
					if c != letter {
						fail("read %q on the connection of %q", c, letter)
						return
					}
				}
				if err != nil {
					if err != ErrClosed && err != io.EOF && err != syscall.ECONNRESET {
						fail("Read: %v", err)
					}
					return
				}
			}
		})
	}
	for range rand.IntN(30) {
		runtime.Gosched()
	}
	for _, end := range ends {
		if err := end.Close(); err != nil {
			fail("Close: %v", err)
		}
	}
	running.Wait()
	return !failed.Load()
}
