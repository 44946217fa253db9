package loop

import (
	"bytes"
	"io"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
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

// A watched descriptor's owner is told of data, of room and of the end, each time.
func TestWatch(t *testing.T) {
	testnet.NoLeaks(t)
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			config := engine.config
			config.Loops = 1
			g := newTestGroup(t, config)
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
			p := make([]byte, 100)
			for range 3 {
				_, _ = peer.Write([]byte("ping"))
				events.await(t, Readable)
				if n, err := f.TryRead(p); n != 4 || err != nil {
					t.Errorf("TryRead: got %d, %v, want 4", n, err)
				}
				if n, err := f.TryRead(p); n != 0 || err != nil {
					t.Errorf("TryRead of nothing: got %d, %v, want 0", n, err)
				}
			}
			watchRoom(t, f, peer, events)
			_ = peer.Shutdown(unix.SHUT_WR)
			events.await(t, Readable|Hangup)
			if n, err := f.TryRead(p); n != 0 || err != io.EOF {
				t.Errorf("TryRead at the end: got %d, %v, want EOF", n, err)
			}
			if !f.Unwatch() || f.Unwatch() {
				t.Error("Unwatch: want true, then false")
			}
			closeFD(t, f)
			closeFD(t, peer)
			if err := f.Watch(&h); err != ErrClosed {
				t.Errorf("Watch after Close: got %v, want %v", err, ErrClosed)
			}
		})
	}
}

// watchRoom fills the socket, and goes on each time that there is room.
func watchRoom(t *testing.T, f, peer *FD, events watching) {
	t.Helper()
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	got := make(chan bool)
	go func() {
		b := make([]byte, len(data))
		n := 0
		for n < len(b) {
			m, err := peer.Read(b[n:])
			if err != nil {
				break
			}
			n += m
		}
		got <- bytes.Equal(b, data)
	}()
	tries := 0
	for left := data; len(left) > 0; tries++ {
		n, err := 0, error(nil)
		if tries%2 == 0 {
			n, err = f.TryWrite(left)
		} else {
			err = f.Stream().TryWrite(func(fd uintptr) bool {
				var errno syscall.Errno
				n, errno = sys.Send(int(fd), left, true)
				return errno == 0 && n == len(left)
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		if left = left[n:]; len(left) > 0 && (tries%2 == 0 || n == 0) {
			events.await(t, Writable)
		}
	}
	if !testnet.Receive(t, "the bytes", got) {
		t.Error("the peer got other bytes")
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

// The owner is told to try again after the user has had the descriptor and changed it.
func TestWatchRaw(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newFDPair(t, g.Loop(0), g.Loop(0), overTCP)
	events := make(watching, 100)
	var h EventHandler = events
	if err := f.Watch(&h); err != nil {
		t.Fatal(err)
	}
	if err := f.RawControl(func(uintptr) {}); err != nil {
		t.Fatal(err)
	}
	events.await(t, Readable|Writable)
	closeFD(t, f)
	closeFD(t, peer)
}

// Deferred functions run after the events and tasks of the batch, in order, and those that they
// defer in the next.
func TestDefer(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 1})
	l := g.Loop(0)
	order := make(chan string, 10)
	l.Submit(func() {
		l.Defer(func() {
			order <- "deferred"
			l.Defer(func() { order <- "deferred again" })
		})
		order <- "task"
		l.Submit(func() { order <- "task of a task" })
	})
	want := []string{"task", "deferred", "task of a task", "deferred again"}
	for _, w := range want {
		if got := testnet.Receive(t, "a function", order); got != w {
			t.Errorf("got %q, want %q", got, w)
		}
	}
}

// A Timer runs its function on the loop, not early, once each time that it is set.
func TestTimer(t *testing.T) {
	testnet.NoLeaks(t)
	g := newTestGroup(t, Config{Loops: 1})
	l := g.Loop(0)
	var fired atomic.Int64
	start, d := time.Now(), 20*time.Millisecond
	timer := l.AfterFunc(d, func() { fired.Add(1) })
	testnet.Eventually(t, "the timer fires", func() bool { return fired.Load() == 1 })
	if took := time.Since(start); took < d {
		t.Errorf("it fired after %v, want %v at least", took, d)
	}
	if timer.Stop() {
		t.Error("Stop of a timer that has fired: got true")
	}
	if timer.Reset(time.Hour) || !timer.Reset(time.Hour) || !timer.Stop() || timer.Stop() {
		t.Error("Reset, Reset, Stop, Stop: want false, true, true, false")
	}
	timer.Reset(0)
	testnet.Eventually(t, "the timer fires again", func() bool { return fired.Load() == 2 })
	timer.Reset(time.Hour) // ends with the group
}

// TestReadNow: ReadNow finds what the kernel has, although the loop, which is not polled here, has
// not reported it.
func TestReadNow(t *testing.T) {
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			config := engine.config
			config.Loops = 1
			g := newTestGroup(t, config)
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
}
