package loop

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// hold takes a hold as a call does.
func hold(t *testing.T, f *FD) {
	t.Helper()
	if err := f.WriteWith(func(uintptr) bool { f.Hold(); return true }); err != nil {
		t.Fatalf("WriteWith: %v", err)
	}
}

// isOpen reports whether a descriptor is.
func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// wantEOF reads the end of the stream.
func wantEOF(t *testing.T, peer net.Conn) {
	t.Helper()
	r := await(t, "the peer's Read", start(func() (int, error) { return peer.Read(make([]byte, 1)) }))
	if r != (result{0, io.EOF}) {
		t.Errorf("the peer's Read: got %v, want EOF", r)
	}
}

// A descriptor that is held stays open and registered after Close, until the last
// hold; for everybody else it is closed at once.
func TestHold(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		hold(t, f)
		hold(t, f)
		l, fd := f.loop, int(f.sysfd)
		waiting := start(func() (int, error) { return f.Read(make([]byte, 1)) })
		closeFD(t, f)
		if r := await(t, "Read", waiting); r != (result{0, ErrClosed}) {
			t.Errorf("Read during Close: got %v, want ErrClosed", r)
		}
		if err := f.Close(); err != ErrClosed {
			t.Errorf("Close again: got %v, want ErrClosed", err)
		}
		wantEOF(t, peer)
		if f.stream == TCP {
			ms, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
			if want := int(retireTimeout.Milliseconds()); ms != want || err != nil {
				t.Errorf("the user time-out: got %d ms, %v, want %d: the peer could keep the descriptor open for ever", ms, err, want)
			}
		}
		f.Unhold(1)
		if !isOpen(fd) || l.Descriptors() != 1 {
			t.Fatalf("while it is held: got open %t, %d descriptors, want true, 1", isOpen(fd), l.Descriptors())
		}
		f.Unhold(1)
		testnet.Eventually(t, "the descriptor is closed", func() bool { return l.Descriptors() == 0 && !isOpen(fd) })
	})
}

// Holds that end before Close change nothing about it.
func TestHoldEndsFirst(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		hold(t, f)
		f.Unhold(1)
		fd := int(f.sysfd)
		closeFD(t, f)
		if isOpen(fd) {
			t.Error("after Close the descriptor is open")
		}
		if f.tryHold() {
			t.Error("a closed descriptor was held")
		}
		wantEOF(t, peer)
	})
}

// slowQueue is an ErrorQueue that takes its time.
type slowQueue struct{ draining, goOn chan struct{} }

func (q slowQueue) Drain(int) {
	q.draining <- struct{}{}
	<-q.goOn
}

// Close waits while the error queue is being read, which is no reason to leave the
// descriptor open: nobody holds it.
func TestCloseDuringDrain(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newPair(t, g.Loop(0), overTCP)
		q := slowQueue{make(chan struct{}, 10), make(chan struct{})}
		f.SetErrorQueue(q)
		_ = peer.(*net.TCPConn).SetLinger(0)
		peer.Close()
		testnet.Receive(t, "the queue is being read", q.draining)
		fd, closed := int(f.sysfd), make(chan error, 1)
		testnet.GoBlocked(t, "Close", func() { closed <- f.Close() })
		select {
		case err := <-closed:
			t.Errorf("Close while the queue is read: got %v, want it to wait", err)
			closed <- err
		default:
		}
		close(q.goOn)
		if err := testnet.Receive(t, "Close", closed); err != nil {
			t.Errorf("Close: %v", err)
		}
		if isOpen(fd) || g.Loop(0).Descriptors() != 0 {
			t.Errorf("after Close: got open %t, %d descriptors, want false, 0", isOpen(fd), g.Loop(0).Descriptors())
		}
	})
}

// completions is an ErrorQueue that counts what it finds.
type completions struct {
	f     *FD
	calls atomic.Int32
	found atomic.Int32
}

func (q *completions) Drain(fd int) {
	q.calls.Add(1)
	for {
		c, ok, errno := sys.RecvCompletion(fd)
		if errno != 0 {
			return
		}
		if ok {
			n := int(c.Last - c.First + 1)
			q.found.Add(int32(n))
			q.f.Unhold(n)
		}
	}
}

// newCompletions makes f one that can send without copying.
func newCompletions(t *testing.T, f *FD) *completions {
	t.Helper()
	if errno := sys.SetsockoptInt(int(f.sysfd), unix.SOL_SOCKET, unix.SO_ZEROCOPY, 1); errno != 0 {
		t.Skipf("the kernel has no SO_ZEROCOPY: %v", errno)
	}
	q := &completions{f: f}
	f.SetErrorQueue(q)
	if f.ErrorQueue() != ErrorQueue(q) {
		t.Error("ErrorQueue did not return what was set")
	}
	return q
}

// sendZerocopy sends p without copying and holds f for it.
func sendZerocopy(t *testing.T, f *FD, p []byte) {
	t.Helper()
	if err := f.WriteWith(func(fd uintptr) bool {
		f.Hold()
		if n, errno := sys.SendZerocopy(int(fd), p); n != len(p) || errno != 0 {
			t.Errorf("SendZerocopy: got %d, %v, want %d", n, errno, len(p))
		}
		return true
	}); err != nil {
		t.Fatalf("WriteWith: %v", err)
	}
}

// A message in the error queue goes to who reads that, and to nobody else: whether
// somebody waits to read, or nobody.
func TestErrorQueue(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newPair(t, g.Loop(0), overTCP)
		q := newCompletions(t, f)
		for i := range int32(3) {
			sendZerocopy(t, f, make([]byte, 5000))
			_, _ = io.ReadFull(peer, make([]byte, 5000))
			testnet.Eventually(t, "the completion", func() bool { return q.found.Load() == i+1 && !f.held() })
			if state := f.rd.state.Load(); state&ready != 0 {
				t.Errorf("after a completion: got state %#x, want nothing to read", state)
			}
		}
		waiting := start(func() (int, error) { return f.Read(make([]byte, 10)) })
		testnet.Eventually(t, "Read waits", func() bool { return f.rd.state.Load()&waitingBit != 0 })
		for i := range int32(3) {
			sendZerocopy(t, f, make([]byte, 5000))
			_, _ = io.ReadFull(peer, make([]byte, 5000))
			testnet.Eventually(t, "the completion", func() bool { return q.found.Load() == i+4 && !f.held() })
			if state := f.rd.state.Load(); state&waitingBit == 0 {
				t.Errorf("after a completion: got state %#x, want Read to wait still", state)
			}
		}
		_, _ = io.WriteString(peer, "text")
		if r := await(t, "Read", waiting); r != (result{4, nil}) {
			t.Errorf("Read: got %v, want 4", r)
		}
	})
}

// An error is an error with and without somebody who reads the queue.
func TestErrorQueueReset(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, watched := range []bool{false, true} {
			f, peer := newPair(t, g.Loop(0), overTCP)
			if watched {
				newCompletions(t, f)
			}
			waiting := start(func() (int, error) { return f.Read(make([]byte, 10)) })
			testnet.Eventually(t, "Read waits", func() bool { return f.rd.state.Load()&waitingBit != 0 })
			_ = peer.(*net.TCPConn).SetLinger(0)
			peer.Close()
			if r := await(t, "Read", waiting); r != (result{0, syscall.ECONNRESET}) {
				t.Errorf("error queue read %t: Read: got %v, want ECONNRESET", watched, r)
			}
			closeFD(t, f)
		}
	})
}

// waitingBit is the bit, which some tests have a variable of the name of.
const waitingBit = waiting

// Close, completions and resets all at once.
func TestHoldRace(t *testing.T) {
	onEveryEngine(t, 2, func(t *testing.T, g *Group) {
		for i := range 200 {
			f, peer := newPair(t, g.Loop(i%2), overTCP)
			newCompletions(t, f)
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				p := make([]byte, 8000)
				for range 5 {
					err := f.WriteWith(func(fd uintptr) bool {
						f.Hold()
						if _, errno := sys.SendZerocopy(int(fd), p); errno != 0 {
							f.Unhold(1)
						}
						return true
					})
					if err != nil {
						return
					}
				}
			}()
			reading := start(func() (int, error) { return peer.Read(make([]byte, 1+i*100)) })
			await(t, "the peer's Read", reading)
			switch i % 3 {
			case 0:
				peer.Close()
			case 1:
				_ = peer.(*net.TCPConn).SetLinger(0)
				peer.Close()
			}
			closeFD(t, f)
			testnet.Receive(t, "the sender", sent)
			peer.Close()
		}
		testnet.Eventually(t, "all descriptors are closed", func() bool {
			return g.Loop(0).Descriptors()+g.Loop(1).Descriptors() == 0
		})
	})
}
