package loop

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/testnet"
)

// newDirect returns a descriptor that is alone on its loop, with the other end of the connection.
func newDirect(t *testing.T) (*FD, net.Conn) {
	g := newTestGroup(t, Config{Loops: 2})
	g.processors = 2 // or more: on a single one there are no direct waits
	return newPair(t, g.Loop(0), overTCP)
}

// beginDirect makes f's direct wait begin, with h armed.
func beginDirect(t *testing.T, f *FD, h ReadableHandler) {
	t.Helper()
	if err := f.NotifyReadable(h); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	f.loop.direct.mu.Lock()
	f.loop.direct.skip = 0
	f.loop.direct.mu.Unlock()
	eventually(t, "BeginDirect", f.BeginDirect) // there may be another test's waiter
}

// startDirect makes a goroutine wait directly. It returns whether it has found an event.
func startDirect(f *FD) <-chan bool {
	found := make(chan bool, 1)
	go func() { found <- f.WaitDirectly() }()
	return found
}

// findDirect waits directly until there is an event, of which a moment may be too short.
func findDirect(t *testing.T, f *FD) {
	t.Helper()
	eventually(t, "an event", f.WaitDirectly)
}

// The event of a direct wait goes to the callback. The loop's goroutine gets none, and all events again
// as soon as another party waits.
func TestDirect(t *testing.T) {
	f, peer := newDirect(t)
	h := offLoop{make(chan error, 1)}
	for range 3 {
		beginDirect(t, f, h)
		if f.BeginDirect() {
			t.Fatal("two wait directly")
		}
		mustWrite(t, peer, "a")
		findDirect(t, f)
		if len(h.called) > 0 {
			t.Error("the callback was called before EndDirect")
		}
		f.EndDirect()
		if err := testnet.Receive(t, "the callback", h.called); err != nil {
			t.Errorf("OnReadable: got %v, want nil", err)
		}
		mustRead(t, f, "a")
		if f.loop.direct.masked.Load() != f {
			t.Error("the descriptor is not masked, though nobody waits for it")
		}
		if err := f.NotifyReadable(h); err != nil {
			t.Fatal(err)
		}
		mustWrite(t, peer, "b")
		testnet.Receive(t, "the callback", h.called)
		mustRead(t, f, "b")
	}
}

// Any party that begins to wait after a direct wait, or before its end, gets its event.
func TestDirectExpose(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, f *FD, event func()){
		"Read": func(t *testing.T, f *FD, event func()) {
			read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
			awaitWaiting(t, &f.rd)
			event()
			if r := await(t, "Read", read); r.n != 1 || r.err != nil {
				t.Errorf("Read: got %v, want 1, nil", r)
			}
		},
		"callback": func(t *testing.T, f *FD, event func()) {
			called := make(chan error, 1)
			if err := f.OnReadable(func(err error) { called <- err }); err != nil {
				t.Fatal(err)
			}
			event()
			testnet.Receive(t, "the callback", called)
		},
		"watcher": func(t *testing.T, f *FD, event func()) {
			events := make(chan Readiness, 8)
			var h EventHandler = eventFunc(func(r Readiness) { events <- r })
			if err := f.Watch(&h); err != nil {
				t.Fatal(err)
			}
			event()
			testnet.Receive(t, "the event", events)
			f.Unwatch()
		},
		"Write": func(t *testing.T, f *FD, event func()) {
			_ = f.SetWriteDeadline(time.Now().Add(testnet.HangTimeout))
			written := start(func() (int, error) { return f.Write(manyBytes) })
			awaitWaiting(t, &f.wr)
			event()
			if r := await(t, "Write", written); r.n != len(manyBytes) {
				t.Errorf("Write: got %v, want all", r)
			}
		},
	} {
		for _, early := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				f, peer := newDirect(t)
				h := offLoop{make(chan error, 1)}
				beginDirect(t, f, h)
				mustWrite(t, peer, "a")
				findDirect(t, f)
				event := func() {
					go io.Copy(io.Discard, peer)
					mustWrite(t, peer, "b")
				}
				if early { // the event is that of the direct wait
					f.CancelOnReadable()
					wait(t, f, func() {
						go io.Copy(io.Discard, peer)
						f.EndDirect()
					})
					return
				}
				f.EndDirect()
				testnet.Receive(t, "the callback", h.called)
				mustRead(t, f, "a")
				wait(t, f, event)
			})
		}
	}
}

// Close ends a direct wait, and tasks do.
func TestDirectClose(t *testing.T) {
	for _, task := range []bool{false, true} {
		f, _ := newDirect(t)
		h := offLoop{make(chan error, 1)}
		beginDirect(t, f, h)
		found := startDirect(f)
		if task {
			f.loop.Submit(func() {})
		} else {
			go f.Close()
		}
		if testnet.Receive(t, "WaitDirectly", found) {
			t.Error("WaitDirectly has found an event")
		}
		f.EndDirect()
		if task {
			continue
		}
		if err := testnet.Receive(t, "the callback", h.called); err != ErrClosed {
			t.Errorf("OnReadable: got %v, want %v", err, ErrClosed)
		}
		eventually(t, "the descriptor's end", func() bool { return f.loop.Descriptors() == 0 })
		if f.loop.direct.masked.Load() != nil {
			t.Error("a closed descriptor is kept")
		}
	}
}

// A direct wait does not begin where it would not be worth it, or not allowed.
func TestNoDirect(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T, f *FD, peer net.Conn){
		"nothing written since the last event": func(t *testing.T, f *FD, peer net.Conn) {
			mustWrite(t, peer, "a")
			mustRead(t, f, "a")
		},
		"another descriptor":  func(t *testing.T, f *FD, peer net.Conn) { newPair(t, f.loop, overUnix) },
		"the end of a stream": func(t *testing.T, f *FD, peer net.Conn) { peer.Close(); awaitBits(t, f, hangup) },
		"one processor":       func(t *testing.T, f *FD, peer net.Conn) { f.loop.group.processors = 1 },
		"misses": func(t *testing.T, f *FD, peer net.Conn) {
			f.loop.direct.mu.Lock()
			defer f.loop.direct.mu.Unlock()
			f.loop.direct.learn(false)
		},
		"room is watched": func(t *testing.T, f *FD, peer net.Conn) {
			if err := f.expectRoom(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, peer := newDirect(t)
			if _, err := f.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if err := f.OnReadable(func(error) {}); err != nil {
				t.Fatal(err)
			}
			prepare(t, f, peer)
			if name == "misses" && invariants.Enabled {
				t.Skip("a checking build doesn't learn: run it without the tag invariants")
			}
			if f.BeginDirect() {
				f.EndDirect()
				t.Error("a direct wait has begun")
			}
		})
	}
}

// TestDirectPingPong plays with a worker that waits directly, or not, against parties that disturb it.
// No byte is forgotten.
func TestDirectPingPong(t *testing.T) {
	f, peer := newDirect(t)
	h := offLoop{make(chan error, 1)}
	rounds := 3000
	if testing.Short() {
		rounds = 500
	}
	end := make(chan struct{})
	disturbed := make(chan struct{})
	go func() {
		defer close(disturbed)
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			default:
			}
			switch i % 4 {
			case 0:
				f.loop.Submit(func() {})
			case 1:
				f.loop.Look(false)
			case 2:
				f.expose()
			case 3:
				if f.CancelOnReadable() {
					h.called <- nil // as if it had come
				}
			}
			time.Sleep(50 * time.Microsecond)
		}
	}()
	served := make(chan struct{})
	go func() {
		defer close(served)
		p := make([]byte, 8)
		for n := 0; n < rounds; {
			if err := f.NotifyReadable(h); err != nil {
				t.Error(err)
				return
			}
			if f.BeginDirect() {
				if n%5 != 0 {
					f.WaitDirectly()
				}
				f.EndDirect()
			}
			<-h.called
			m, err := f.TryRead(p)
			if err != nil {
				t.Error(err)
				return
			}
			if n += m; m > 0 {
				_, _ = f.Write(p[:m])
			}
		}
	}()
	_ = peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
	for range rounds {
		mustWrite(t, peer, "x")
		if _, err := peer.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	testnet.Receive(t, "the server", served)
	close(end)
	testnet.Receive(t, "the other", disturbed)
}
