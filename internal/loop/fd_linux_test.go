package loop

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// A stream is a sequence of bytes that any part of tells its place: what is
// lost, repeated or swapped shows up where it happened.
type stream struct{ rng *rand.ChaCha8 }

func newStream(id int) *stream {
	return &stream{rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)})}
}

// next returns the next n bytes.
func (s *stream) next(n int) []byte {
	p := make([]byte, n)
	_, _ = s.rng.Read(p)
	return p
}

// Memory may have no more behind it from somewhere on: a mapping of a file that has
// been cut short meanwhile. A write says so, and doesn't wait for room.
func TestWriteFromMemoryThatIsGone(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector has no shadow of mapped memory: run it without -race")
	}
	const size, left = 256 << 10, 128 << 10
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := file.Truncate(size); err != nil {
			t.Fatal(err)
		}
		p, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			t.Fatalf("mmap: %v", err)
		}
		defer unix.Munmap(p)
		if err := file.Truncate(left); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		for range 3 { // only the first to wait for room extends the registration, which is an edge
			r := await(t, "Write", start(func() (int, error) { return f.Write(p) }))
			if r.n > left || r.err != syscall.EFAULT {
				t.Errorf("Write: got %v, want %d at most, %v", r, left, syscall.EFAULT)
			}
		}
	})
}

// A panic of the user's function must leave the descriptor usable.
func TestRawPanic(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *FD, peer net.Conn) {
		for name, call := range map[string]func(){
			"RawRead":    func() { _ = f.RawRead(func(uintptr) bool { panic("mine") }) },
			"RawWrite":   func() { _ = f.RawWrite(func(uintptr) bool { panic("mine") }) },
			"RawControl": func() { _ = f.RawControl(func(uintptr) { panic("mine") }) },
		} {
			func() {
				defer func() {
					if got := recover(); got != "mine" {
						t.Errorf("%s: panic is %v, want the function's own", name, got)
					}
				}()
				call()
			}()
		}
		mustWrite(t, peer, "data")
		mustRead(t, f, "data")
		if n, err := f.Write([]byte("x")); n != 1 || err != nil {
			t.Errorf("Write: got %d, %v, want 1, nil", n, err)
		}
		closeFD(t, f) // would wait forever for a reference that was not given back
	})
}

// rawCalls are the ways to lend out the raw descriptor. Each calls fn once.
var rawCalls = map[string]func(f *FD, fn func(fd uintptr)) error{
	"RawControl": (*FD).RawControl,
	"RawRead":    func(f *FD, fn func(uintptr)) error { return f.RawRead(func(fd uintptr) bool { fn(fd); return true }) },
	"RawWrite":   func(f *FD, fn func(uintptr)) error { return f.RawWrite(func(fd uintptr) bool { fn(fd); return true }) },
}

// A use of the raw descriptor that only looks at the socket costs its reads nothing afterwards.
// gRPC's Control, database drivers' Read and net.TCPConn's ReadFrom are such uses.
func TestRawCallThatLooks(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for name, call := range rawCalls {
			f, peer := newPair(t, g.Loop(0), overTCP)
			during := uint32(0)
			if err := call(f, func(fd uintptr) {
				during = f.rd.state.Load()
				_, _ = unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
				_, _, _ = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
			}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if during&rawInUse == 0 {
				t.Errorf("state during %s: got %05b, want rawInUse in it", name, during)
			}
			mustWrite(t, peer, "x")
			settle(t, f.loop) // RawRead leaves ready on: a read that is faster than the edge is followed by it
			mustRead(t, f, "x")
			if st := f.rd.state.Load(); st&(ready|shortReadUnreliable|rawInUse) != 0 {
				t.Errorf("state after %s and a short read: got %05b, want drained and nothing else", name, st)
			}
		}
	})
}

// changeLowWater makes a short read prove nothing.
func changeLowWater(t *testing.T) func(fd uintptr) {
	return func(fd uintptr) {
		if err := unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, 2); err != nil {
			t.Errorf("SO_RCVLOWAT: %v", err)
		}
	}
}

// A short read of a socket on which it means nothing any more is not relied on, and a
// reader that relied on one is woken.
func TestRawCallThatChanges(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		for name, call := range rawCalls {
			f, peer := newPair(t, g.Loop(0), overTCP)
			read := make(chan error, 1)
			if name != "RawRead" { // which waits for the reader
				testnet.GoBlocked(t, "Read", func() {
					_, err := f.Read(make([]byte, 10))
					read <- err
				})
			}
			if err := call(f, changeLowWater(t)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if st := f.rd.state.Load(); st&shortReadUnreliable == 0 || st&rawInUse != 0 {
				t.Errorf("state after %s: got %05b, want shortReadUnreliable and not rawInUse", name, st)
			}
			mustWrite(t, peer, "xy")
			if name == "RawRead" {
				mustRead(t, f, "xy")
			} else if err := testnet.Receive(t, "Read", read); err != nil {
				t.Errorf("Read after %s: %v", name, err)
			}
		}
	})
}

func TestNewFDFails(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 3 {
		f, err := g.Loop(0).NewFD(int(file.Fd()), Plain)
		var se *os.SyscallError
		if f != nil || !errors.As(err, &se) || se.Syscall != "epoll_ctl" || se.Err != syscall.EPERM {
			t.Errorf("NewFD of a regular file: got %v, %v, want nil, epoll_ctl: %v", f, err, syscall.EPERM)
		}
	}
	if n, slots := g.Counts().Descriptors, len(g.Loop(0).slots.table); n != 0 || slots != 1 {
		t.Errorf("after 3 failures, one after the other: got %d descriptors, %d slots, want none, 1", n, slots)
	}
	if _, err := file.Stat(); err != nil {
		t.Errorf("the file was closed: %v; it is still the caller's", err)
	}
	g.Close()
	testnet.Receive(t, "the group's end", g.Stopped())
	a, b := overUnix.pair(t)
	defer unix.Close(a)
	defer unix.Close(b)
	if f, err := g.Loop(0).NewFD(a, Plain); f != nil || err != ErrStopped {
		t.Errorf("NewFD on a group that has ended: got %v, %v, want nil, %v", f, err, ErrStopped)
	}
}

// At an urgent mark recv(2) says EAGAIN if a signal is about to be delivered to the thread, however much
// is behind the mark (net/ipv4/tcp.c, tcp_recvmsg_locked). Go's runtime preempts goroutines by signals.
func TestUrgentDataAndSignals(t *testing.T) {
	onEveryEngine(t, 1, func(t *testing.T, g *Group) {
		a, b := overTCP.pair(t)
		defer unix.Close(b)
		f := newTestFD(t, g.Loop(0), a, TCP)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread := unix.Gettid()
		var stop atomic.Bool
		signalled := start(func() (int, error) {
			for !stop.Load() {
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG)
			}
			return 0, nil
		})
		for range 3000 {
			if _, err := unix.SendmsgN(b, []byte("!"), nil, nil, unix.MSG_OOB); err != nil {
				t.Fatalf("sending urgent data: %v", err)
			}
			_, _ = unix.Write(b, []byte("."))
			_ = f.SetReadDeadline(time.Now().Add(3 * time.Second))
			var p [10]byte
			for {
				n, err := f.Read(p[:])
				if err != nil {
					t.Errorf("Read: %v, with a byte behind the urgent mark", err)
					break
				}
				if bytes.HasSuffix(p[:n], []byte(".")) {
					break
				}
			}
			if t.Failed() {
				break
			}
		}
		stop.Store(true)
		_ = await(t, "the signals", signalled)
		closeFD(t, f)
	})
}
