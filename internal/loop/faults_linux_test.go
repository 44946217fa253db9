//go:build percore_faults

package loop

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// callCounts counts the system calls made for one descriptor.
type callCounts struct {
	mu     sync.Mutex
	counts map[sys.Op]int
}

// countCalls counts from now on, until the end of the test, and lets all calls pass.
func countCalls(t *testing.T, sysfd int) *callCounts {
	t.Helper()
	c := &callCounts{counts: make(map[sys.Op]int)}
	t.Cleanup(sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if fd == sysfd {
			c.mu.Lock()
			c.counts[op]++
			c.mu.Unlock()
		}
		return 0
	}))
	return c
}

func (c *callCounts) of(op sys.Op) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[op]
}

// failNth makes the nth call (counted from 1) that matches fail, and calls meanwhile before it does.
func failNth(t *testing.T, nth int, errno syscall.Errno, match func(op sys.Op, fd int) bool, meanwhile func()) (failed *atomic.Bool) {
	t.Helper()
	failed = new(atomic.Bool)
	var seen atomic.Int64
	t.Cleanup(sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if !match(op, fd) || seen.Add(1) != int64(nth) {
			return 0
		}
		if meanwhile != nil {
			meanwhile()
		}
		failed.Store(true)
		return errno
	}))
	return failed
}

// awaitMessage has a Read wait for a message of the peer.
func awaitMessage(t *testing.T, f *FD, peer net.Conn) {
	t.Helper()
	read := start(func() (int, error) { return f.Read(make([]byte, 64)) })
	awaitWaiting(t, &f.rd)
	mustWrite(t, peer, "message")
	if r := await(t, "Read", read); r != (result{7, nil}) {
		t.Fatalf("Read: got %v, want 7, nil", r)
	}
}

func isOp(want sys.Op, sysfd int) func(op sys.Op, fd int) bool {
	return func(op sys.Op, fd int) bool { return op == want && fd == sysfd }
}

// A use of the raw descriptor that changes nothing costs the reads after it one recv
// together: the one that finds out what the use left behind.
func TestReadCostsAfterRawCalls(t *testing.T) {
	const uses, messages = 20, 5
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for name, call := range rawCalls {
			a, b := overTCP.pair(t)
			calls := countCalls(t, a)
			f := newTestFD(t, g.Loop(0), a, TCP)
			peer := netConn(t, b)
			for range uses {
				if err := call(f, func(uintptr) {}); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for range messages {
					awaitMessage(t, f, peer)
				}
			}
			want := uses * messages
			if name == "RawRead" {
				want += uses
			}
			if n := calls.of(sys.OpRead); n != want {
				t.Errorf("recv calls for %d messages and %d times %s: got %d, want %d", uses*messages, uses, name, n, want)
			}
		}
	})
}

// The short read of a TCP stream has used up all there was, and the engine remembers: one message costs
// one recv, and no other call, where package net makes two. On other streams it can't know, and asks.
func TestReadCosts(t *testing.T) {
	const messages = 200
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, tr := range []transport{overTCP, overUnix} {
			t.Run(tr.name, func(t *testing.T) {
				a, b := tr.pair(t)
				calls := countCalls(t, a)
				f := newTestFD(t, g.Loop(0), a, tr.kind)
				peer := netConn(t, b)
				for range messages {
					_ = f.SetReadDeadline(time.Now().Add(time.Hour))
					awaitMessage(t, f, peer)
				}
				want := messages
				if tr.kind != TCP {
					want = 2*messages - 1
				}
				if n := calls.of(sys.OpRead); n != want {
					t.Errorf("recv calls for %d messages: got %d, want %d", messages, n, want)
				}
				if n := calls.of(sys.OpEpollCtl); n != 1 {
					t.Errorf("epoll_ctl calls: got %d, want 1, the registration", n)
				}
				calls.mu.Lock()
				defer calls.mu.Unlock()
				for op, n := range calls.counts {
					if op != sys.OpRead && op != sys.OpEpollCtl {
						t.Errorf("%v calls: got %d, want 0", op, n)
					}
				}
			})
		}
	})
}

// A kernel that has no TCP_ULP (before 4.13) has plain TCP sockets only. Any other
// failure leaves open what the socket is.
func TestNoULP(t *testing.T) {
	for errno, reliable := range map[syscall.Errno]bool{syscall.ENOPROTOOPT: true, syscall.EPERM: false} {
		g := newTestGroup(t, Config{Loops: 1})
		f, _ := newPair(t, g.Loop(0), overTCP)
		failed := failNth(t, 1, errno, isOp(sys.OpGetsockopt, int(f.sysfd)), nil)
		if err := f.RawControl(func(uintptr) {}); err != nil {
			t.Fatalf("RawControl: %v", err)
		}
		if f.rd.shortReadReliable() != reliable || !failed.Load() {
			t.Errorf("after getsockopt failed with %v: got short reads reliable %t, want %t", errno, f.rd.shortReadReliable(), reliable)
		}
	}
}

// Once the user has changed the socket, or has a duplicate, reads ask the kernel.
func TestReadCostsExposed(t *testing.T) {
	const messages = 20
	exposures := map[string]func(f *FD) error{
		"Dup": func(f *FD) error {
			fd, err := f.Dup()
			unix.Close(fd)
			return err
		},
	}
	for name, call := range rawCalls {
		exposures[name] = func(f *FD) error { return call(f, changeLowWater(t)) }
	}
	for name, expose := range exposures {
		t.Run(name, func(t *testing.T) {
			g := newTestGroup(t, Config{Loops: 1})
			f, peer := newPair(t, g.Loop(0), overTCP)
			if err := expose(f); err != nil {
				t.Fatal(err)
			}
			calls := countCalls(t, int(f.sysfd))
			for range messages {
				awaitMessage(t, f, peer)
			}
			// One more each that finds nothing.
			if n := calls.of(sys.OpRead); n != 2*messages {
				t.Errorf("recv calls for %d messages: got %d, want %d", messages, n, 2*messages)
			}
		})
	}
}

// A write that finds room costs one send, and one that has to wait extends the registration, once.
func TestWriteCosts(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	for _, tr := range []transport{overTCP, overUnix} {
		t.Run(tr.name, func(t *testing.T) {
			a, b := tr.pair(t)
			calls := countCalls(t, a)
			f := newTestFD(t, g.Loop(0), a, tr.kind)
			peer := netConn(t, b)
			for range 10 {
				if _, err := f.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			if n := calls.of(sys.OpWrite); n != 10 {
				t.Errorf("send calls for 10 writes: got %d, want 10", n)
			}
			for round := range 3 {
				written := start(func() (int, error) { return f.Write(manyBytes) })
				if round == 0 {
					awaitWaiting(t, &f.wr) // before a reader comes, which might be quick enough
					go func() { _, _ = io.Copy(io.Discard, peer) }()
				}
				if r := await(t, "Write", written); r.err != nil {
					t.Fatal(r.err)
				}
			}
			if n := calls.of(sys.OpEpollCtl); n != 2 {
				t.Errorf("epoll_ctl calls: got %d, want 2: the registration, and room to write", n)
			}
		})
	}
}

// The edge may come between the EAGAIN of a system call and the wait.
func TestEdgeAfterEAGAIN(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		for _, edge := range []struct {
			come func()
			bits uint32
			want result
		}{
			{func() { mustWrite(t, peer, "data") }, ready, result{4, nil}},
			{func() { peer.Close() }, hangup, result{0, io.EOF}},
		} {
			f.rd.setReady(f) // so that it asks the kernel first
			failed := failNth(t, 1, syscall.EAGAIN, isOp(sys.OpRead, int(f.sysfd)), func() {
				edge.come()
				awaitBits(t, f, edge.bits)
			})
			if r := await(t, "Read", start(func() (int, error) { return f.Read(make([]byte, 8)) })); r != edge.want {
				t.Errorf("Read: got %v, want %v", r, edge.want)
			}
			if !failed.Load() {
				t.Error("no call failed: nothing was tested")
			}
		}
	})
}

// Room may be made between the EAGAIN of a send and the registration for it,
// which has to tell then: the kernel raises no edge for room that there is.
func TestRoomAfterEAGAIN(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, _ net.Conn) {
		failed := failNth(t, 1, syscall.EAGAIN, isOp(sys.OpWrite, int(f.sysfd)), nil)
		r := await(t, "Write", start(func() (int, error) { return f.Write([]byte("data")) }))
		if r.n != 4 || r.err != nil {
			t.Errorf("Write: got %v, want 4, nil", r)
		}
		if !failed.Load() {
			t.Error("no call failed: nothing was tested")
		}
	})
}

// A signal may interrupt epoll_pwait at any time. Nothing is lost.
func TestInterruptedPolling(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		f, peer := newPair(t, g.Loop(0), overTCP)
		newPair(t, g.Loop(0), overTCP) // so that the loop polls itself
		var calls atomic.Int64
		t.Cleanup(sys.Inject(func(op sys.Op, _ int) syscall.Errno {
			if op == sys.OpEpollPwait && calls.Add(1)%2 == 0 {
				return syscall.EINTR
			}
			return 0
		}))
		for range 100 {
			mustWrite(t, peer, "data")
			mustRead(t, f, "data")
			settle(t, g.Loop(0))
		}
		if calls.Load() == 0 {
			t.Error("epoll_pwait was not called")
		}
	})
}

// A guest that can't wait for an event has found none, and loses none.
func TestLingerFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSYS, syscall.EPERM, syscall.EINTR} {
		t.Run(errno.Error(), func(t *testing.T) {
			l, fds, peers := newCompany(t, 2)
			defer holdLoop(t, l)()
			defer sys.Inject(func(op sys.Op, _ int) syscall.Errno {
				if op == sys.OpEpollPwait2 {
					return errno
				}
				return 0
			})()
			read := startRead(t, fds[1])
			mustWrite(t, peers[1], "x")
			eventually(t, "the byte is there", func() bool { return sys.Readable(int(fds[1].sysfd)) })
			if l.Look(true) {
				t.Error("Linger: got an event from a call that failed")
			}
			visitUntil(t, l, "the reader is woken", func() bool { return !fds[1].rd.awaited() })
			wantRead(t, "Read", read)
		})
	}
}

// Errors of system calls come back as they are, and a call that fails does not
// take the descriptor with it.
func TestFailingCalls(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		for _, errno := range []syscall.Errno{syscall.ECONNRESET, syscall.ENOMEM, syscall.ETIMEDOUT, syscall.EHOSTUNREACH} {
			mustWrite(t, peer, "data")
			failed := failNth(t, 1, errno, isOp(sys.OpRead, int(f.sysfd)), nil)
			r := await(t, "Read", start(func() (int, error) { return f.Read(make([]byte, 8)) }))
			if r.n != 0 || r.err != errno || !failed.Load() {
				t.Errorf("Read: got %v, want 0, %v", r, errno)
			}
			mustRead(t, f, "data") // the failure must not have used the news up
			failed = failNth(t, 1, errno, isOp(sys.OpWrite, int(f.sysfd)), nil)
			if n, err := f.Write([]byte("x")); n != 0 || err != errno || !failed.Load() {
				t.Errorf("Write: got %d, %v, want 0, %v", n, err, errno)
			}
			if n, err := f.Write([]byte("x")); n != 1 || err != nil {
				t.Errorf("Write after the failure: got %d, %v, want 1, nil", n, err)
			}
			failNth(t, 1, errno, isOp(sys.OpShutdown, int(f.sysfd)), nil)
			if err := f.Shutdown(syscall.SHUT_WR); err != errno {
				t.Errorf("Shutdown: got %v, want %v", err, errno)
			}
			failNth(t, 1, syscall.EMFILE, isOp(sys.OpFcntl, int(f.sysfd)), nil)
			if fd, err := f.Dup(); fd != -1 || err != syscall.EMFILE {
				t.Errorf("Dup: got %d, %v, want -1, %v", fd, err, syscall.EMFILE)
			}
		}
	})
}

// A write that can't be watched for room fails, and says by which call.
func TestFailingWatchWrites(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		failed := failNth(t, 1, syscall.ENOMEM, isOp(sys.OpEpollCtl, int(f.sysfd)), nil)
		r := await(t, "Write", start(func() (int, error) { return f.Write(manyBytes) }))
		var se *os.SyscallError
		if r.n == 0 || !errors.As(r.err, &se) || se.Syscall != "epoll_ctl" || se.Err != syscall.ENOMEM || !failed.Load() {
			t.Errorf("Write: got %v, want a part, epoll_ctl: %v", r, syscall.ENOMEM)
		}
		// The next one tries again.
		written := start(func() (int, error) { return f.Write(manyBytes) })
		_ = peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		_, _ = io.CopyN(io.Discard, peer, int64(r.n+len(manyBytes)))
		if r := await(t, "Write", written); r.err != nil {
			t.Errorf("next Write: got %v, want nil", r)
		}
	})
}

// A descriptor that can't be masked is not waited for directly. One that can't be unmasked is later.
func TestFailingMask(t *testing.T) {
	f, peer := newDirect(t)
	h := offLoop{make(chan error, 1)}
	if err := f.NotifyReadable(h); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	epollCtl := isOp(sys.OpEpollCtl, int(f.sysfd))
	failed := failNth(t, 1, syscall.ENOMEM, epollCtl, nil)
	eventually(t, "a failure", func() bool { return f.BeginDirect() || failed.Load() })
	if f.loop.direct.waiter.Load() != nil {
		t.Error("a direct wait has begun")
	}
	eventually(t, "BeginDirect", f.BeginDirect)
	failed = failNth(t, 1, syscall.ENOMEM, epollCtl, nil)
	f.EndDirect()
	mustWrite(t, peer, "a")
	testnet.Receive(t, "the callback", h.called)
	if !failed.Load() {
		t.Error("the call that unmasks has not failed")
	}
}

func TestFailingClose(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for _, waited := range []bool{false, true} {
			a, b := overUnix.pair(t)
			f := newTestFD(t, g.Loop(0), a, Plain)
			var read <-chan result
			if waited {
				read = start(func() (int, error) { return f.Read(make([]byte, 1)) })
				awaitWaiting(t, &f.rd)
			}
			failNth(t, 1, syscall.EIO, isOp(sys.OpClose, a), nil)
			r := await(t, "Close", startErr(f.Close))
			if r.err != syscall.EIO && !(waited && r.err == nil) { // a waiter can't know
				t.Errorf("Close: got %v, want %v", r.err, syscall.EIO)
			}
			if waited {
				await(t, "Read", read)
			}
			if n, err := unix.Read(b, make([]byte, 1)); n != 0 || err != nil {
				t.Errorf("peer: got %d, %v, want the end: the descriptor is closed whatever close says", n, err)
			}
			unix.Close(b)
		}
		if n := g.Counts().Descriptors; n != 0 {
			t.Errorf("descriptors: got %d, want 0", n)
		}
	})
}

// Whichever of its system calls fails, NewGroup fails with that, says so in one
// line and leaves nothing behind.
func TestNewGroupFails(t *testing.T) {
	const loops = 3
	onEveryConfig(t, loops, func(t *testing.T, config Config) {
		for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC} {
			nth := 1
			for ; ; nth++ {
				if !newGroupFails(t, config, nth, errno) {
					break
				}
			}
			starts := 1
			if config.Strategy == Thread {
				starts = loops
			}
			// epoll_create1, fcntl, eventfd2 and epoll_ctl
			if nth != 4*starts+1 {
				t.Errorf("NewGroup makes %d calls that can fail, want %d", nth-1, 4*starts)
			}
		}
	})
}

// newGroupFails reports whether there was an nth call to fail.
func newGroupFails(t *testing.T, config Config, nth int, errno syscall.Errno) bool {
	t.Helper()
	before := testnet.CountFDs()
	var op sys.Op
	var seen atomic.Int64
	var starting atomic.Bool
	starting.Store(true)
	restore := sys.Inject(func(o sys.Op, _ int) syscall.Errno {
		switch o {
		case sys.OpEpollCreate1, sys.OpFcntl, sys.OpEventfd2, sys.OpEpollCtl:
			if starting.Load() && seen.Add(1) == int64(nth) {
				op = o
				return errno
			}
		}
		return 0
	})
	defer restore()
	g, err := NewGroup(config)
	starting.Store(false)
	if seen.Load() < int64(nth) {
		if err != nil {
			t.Fatalf("NewGroup with no call failing: %v", err)
		}
		g.Close()
		testnet.Receive(t, "the group's end", g.Stopped())
		return false
	}
	var se *os.SyscallError
	if g != nil || !errors.As(err, &se) || se.Syscall != op.String() || se.Err != errno {
		t.Errorf("call %d: NewGroup: got %v, %v, want nil, %v: %v", nth, g, err, op, errno)
	}
	if err != nil && (!strings.HasPrefix(err.Error(), "loop: can't ") || strings.Contains(err.Error(), "\n")) {
		t.Errorf("call %d: error %q, want one line that says what can't be done", nth, err)
	}
	if after := testnet.CountFDs(); after != before {
		t.Errorf("call %d (%v): %d descriptors before, %d after", nth, op, before, after)
	}
	return true
}

// A loop that can't start for lack of descriptors leaves its descriptors to those that
// have started, and starts later.
func TestLoopStartFails(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 3})
	for nth, op := range []sys.Op{sys.OpEpollCreate1, sys.OpFcntl, sys.OpEventfd2, sys.OpEpollCtl} {
		restore := sys.Inject(func(o sys.Op, _ int) syscall.Errno {
			if o == op {
				return syscall.EMFILE
			}
			return 0
		})
		for range 2 * g.Len() { // wherever it starts to look
			if got := g.LeastLoaded(); got != g.Loop(0) {
				t.Errorf("least loaded: got loop %d, want loop 0, which has started", got.index)
			}
		}
		a, b := overUnix.pair(t)
		if _, err := g.Loop(1).NewFD(a, Plain); !errors.Is(err, syscall.EMFILE) {
			t.Errorf("NewFD on loop 1: got %v, want %v", err, syscall.EMFILE)
		}
		syscall.Close(a)
		syscall.Close(b)
		ran := make(chan struct{})
		g.Loop(2).Submit(func() { close(ran) })
		testnet.Receive(t, "a task for a loop that can't start is run", ran)
		restore()
		if g.Loop(1).started.Load() || g.Loop(2).started.Load() {
			t.Fatalf("failure %d: a loop has started", nth)
		}
	}
	f, peer := newPair(t, g.Loop(1), overUnix)
	if _, err := peer.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Read(make([]byte, 8)); n != 1 || err != nil {
		t.Errorf("Read on loop 1, once it can start: got %d, %v, want 1, nil", n, err)
	}
}

func TestNewSetCallFails(t *testing.T) {
	for nth := 1; nth <= 5; nth++ {
		before := testnet.CountFDs()
		_, fds := newTestAcceptPoller(t, 3)
		var seen atomic.Int64
		restore := sys.Inject(func(op sys.Op, _ int) syscall.Errno {
			if op != sys.OpClose && seen.Add(1) == int64(nth) {
				return syscall.ENOMEM
			}
			return 0
		})
		s, err := NewAcceptPoller(fds)
		restore()
		if s != nil || !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("call %d: NewAcceptPoller: got %v, %v, want nil, %v", nth, s, err, syscall.ENOMEM)
		}
		if after := testnet.CountFDs(); after != before+4 { // the eventfds and the AcceptPoller that newTestAcceptPoller made
			t.Errorf("call %d: %d descriptors are left, want 0", nth, after-before-4)
		}
	}
}

// A readiness that may be old is checked by a call that takes nothing away,
// and if that fails the callback is called: better once for nothing than never.
func TestFailingPeek(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, _ := newPair(t, g.Loop(0), overUnix)
	f.rd.setReady(f)
	failed := failNth(t, 1, syscall.ENOMEM, isOp(sys.OpPpoll, int(f.sysfd)), nil)
	wantCalled(t, arm(t, f), nil)
	if !failed.Load() {
		t.Error("no call failed: nothing was tested")
	}
}
