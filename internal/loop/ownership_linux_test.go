package loop

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// newLonePair returns the only descriptor of a loop, whose goroutine has stood
// down for good: no goroutine polls, and the next one to wait will.
func newLonePair(t *testing.T, tr transport) (*FD, net.Conn) {
	t.Helper()
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), tr)
	for led := false; !led; {
		ping(t, f, peer)
		awaitOwner(t, f.loop, unowned)
		// The loop's goroutine may only be about to release the polling. If it sees a waiter before
		// the waiter sees that no goroutine polls, it goes on polling: once more, then.
		read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
		eventually(t, "a goroutine polls", func() bool { return f.loop.owner.state.Load() != unowned })
		led = f.loop.owner.state.Load() == ownedByWaiter
		mustWrite(t, peer, "pong")
		if r := await(t, "Read", read); r.n != 4 || r.err != nil {
			t.Fatalf("Read: got %v, want 4, nil", r)
		}
	}
	return f, peer
}

// ping has f read a message.
func ping(t *testing.T, f *FD, peer net.Conn) {
	t.Helper()
	mustWrite(t, peer, "ping")
	mustRead(t, f, "ping")
}

func awaitOwner(t *testing.T, l *Loop, want uint32) {
	t.Helper()
	names := [...]string{ownedByLoop: "the loop's goroutine", unowned: "no goroutine", ownedByWaiter: "a waiter"}
	eventually(t, names[want]+" polls", func() bool { return l.owner.state.Load() == want })
}

// A goroutine that waits for the only descriptor polls itself, and the loop's
// goroutine is left alone.
func TestPollOwnershipOnePingsAlone(t *testing.T) {
	for _, tr := range []transport{overTCP, overUnix} {
		t.Run(tr.name, func(t *testing.T) {
			f, peer := newLonePair(t, tr)
			for range 100 {
				read := start(func() (int, error) { return f.Read(make([]byte, 8)) })
				awaitOwner(t, f.loop, ownedByWaiter)
				mustWrite(t, peer, "ping")
				if r := await(t, "Read", read); r.n != 4 || r.err != nil {
					t.Fatalf("Read: got %v, want 4, nil", r)
				}
				awaitOwner(t, f.loop, unowned)
			}
		})
	}
}

// The loop's goroutine goes on polling for a callback that is armed anew after each event: to release
// the polling in between would cost a wake-up each time.
func TestPollOwnershipCallbacks(t *testing.T) {
	g := newTestGroup(t, Config{Loops: 1})
	f, peer := newPair(t, g.Loop(0), overTCP)
	for range 100 {
		called := arm(t, f)
		mustWrite(t, peer, "x")
		wantCalled(t, called, nil)
		runtime.Gosched()
		if owner := f.loop.owner.state.Load(); owner != ownedByLoop {
			t.Fatalf("after a callback: got owner %d, want %d, the loop's goroutine", owner, ownedByLoop)
		}
		tryRead(t, f, make([]byte, 8))
	}
}

// ownershipEvents are events that a loop must look after even though it has released the polling, or
// a waiter polls in its place. TestFDModel draws those of a single descriptor.
var ownershipEvents = []struct {
	name string
	do   func(t *testing.T, f *FD, peer net.Conn)
}{
	{"task", func(t *testing.T, f *FD, _ net.Conn) { settle(t, f.loop) }},
	{"another descriptor's callbacks", func(t *testing.T, f *FD, _ net.Conn) {
		e := newEventFD(t, f.loop, nil)
		for i := range int64(3) {
			e.fire()
			e.awaitCalls(t, i+1)
		}
	}},
	{"another descriptor that is ready", func(t *testing.T, f *FD, _ net.Conn) {
		a, b := unixPair(t)
		defer unix.Close(b)
		_, _ = unix.Write(b, []byte("x"))
		other := newTestFD(t, f.loop, a, Plain)
		wantCalled(t, arm(t, other), nil)
	}},
	{"callback that reads", func(t *testing.T, f *FD, peer net.Conn) {
		done := make(chan struct{})
		if err := f.OnReadable(func(error) {
			defer close(done)
			if !f.loop.onLoop() {
				t.Error("the callback is called by a goroutine that isn't the loop's")
			}
			tryRead(t, f, make([]byte, 8)) // would lock up the goroutine in Read
		}); err != nil {
			t.Fatalf("OnReadable: %v", err)
		}
		mustWrite(t, peer, "x")
		testnet.Receive(t, "the callback", done)
	}},
	{"another descriptor", func(t *testing.T, f *FD, _ net.Conn) {
		other, peer := newPair(t, f.loop, overUnix)
		for range 3 {
			ping(t, other, peer)
		}
		closeFD(t, other)
	}},
	{"another descriptor, waiting", func(t *testing.T, f *FD, _ net.Conn) {
		other, peer := newPair(t, f.loop, overTCP)
		read := start(func() (int, error) { return other.Read(make([]byte, 8)) })
		awaitWaiting(t, &other.rd)
		mustWrite(t, peer, "x")
		if r := await(t, "Read of the other one", read); r.err != nil {
			t.Errorf("Read of the other one: %v", r)
		}
	}},
	{"another descriptor's callback", func(t *testing.T, f *FD, _ net.Conn) {
		other, peer := newPair(t, f.loop, overTCP)
		called := arm(t, other)
		mustWrite(t, peer, "x")
		wantCalled(t, called, nil)
	}},
	{"the group's Close", func(t *testing.T, f *FD, _ net.Conn) {
		f.loop.group.Close()
		closeFD(t, f)
		testnet.Receive(t, "the group's end", f.loop.group.Stopped())
	}},
}

// No goroutine polls when the event comes.
func TestPollUnowned(t *testing.T) {
	for _, event := range ownershipEvents {
		t.Run(event.name, func(t *testing.T) {
			f, peer := newLonePair(t, overTCP)
			event.do(t, f, peer)
		})
	}
}

// A goroutine in Read polls when the event comes. It goes on waiting, or is
// woken, as it would be if the loop's goroutine did.
func TestPollOwnershipWithWaiter(t *testing.T) {
	for _, event := range ownershipEvents {
		t.Run(event.name, func(t *testing.T) {
			f, peer := newLonePair(t, overTCP)
			read := start(func() (int, error) { return f.Read(make([]byte, 1)) })
			awaitOwner(t, f.loop, ownedByWaiter)
			event.do(t, f, peer)
			if f.life.closed() {
				if r := await(t, "Read", read); r.err != ErrClosed {
					t.Errorf("Read: got %v, want %v", r, ErrClosed)
				}
				return
			}
			_, _ = peer.Write([]byte("last")) // if the peer is still there
			switch r := await(t, "Read", read); {
			case r.err == nil, r.err == io.EOF, r.err == os.ErrDeadlineExceeded:
			default:
				t.Errorf("Read: got %v, want data, the end or a timeout", r)
			}
		})
	}
}

// A leader that goes on waiting hands over once there are other descriptors: it would
// be woken for each of their events, on a thread of its own perhaps.
func TestPollOwnershipLeaderGivesUp(t *testing.T) {
	f, peer := newLonePair(t, overTCP)
	read := start(func() (int, error) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return f.Read(make([]byte, 8))
	})
	awaitOwner(t, f.loop, ownedByWaiter)
	other, otherPeer := newPair(t, f.loop, overTCP)
	ping(t, other, otherPeer)
	awaitOwner(t, f.loop, ownedByLoop)
	for range 10 {
		ping(t, other, otherPeer)
		if owner := f.loop.owner.state.Load(); owner != ownedByLoop {
			t.Errorf("with two descriptors: got owner %d, want %d, the loop's goroutine", owner, ownedByLoop)
		}
	}
	mustWrite(t, peer, "last")
	if r := await(t, "Read", read); r != (result{4, nil}) {
		t.Errorf("Read of the leader: got %v, want 4", r)
	}
}

// A reader keeps pinging over one descriptor, in and out of polling, while all
// else happens on its loop.
func TestPollOwnershipStress(t *testing.T) {
	for _, tr := range []transport{overTCP, overUnix} {
		t.Run(tr.name, func(t *testing.T) {
			g := newTestGroup(t, Config{Loops: 1})
			l := g.Loop(0)
			f, peer := newPair(t, l, tr)
			var stop atomic.Bool
			var running sync.WaitGroup
			running.Go(func() { // answers each message
				p := make([]byte, 1)
				for {
					_, err := f.Read(p)
					if err == os.ErrDeadlineExceeded {
						runtime.Gosched()
						continue
					}
					if err == io.EOF {
						return
					}
					if err == nil {
						_, err = f.Write(p)
					}
					if err != nil {
						t.Errorf("echo: %v", err)
						return
					}
				}
			})
			running.Go(func() {
				defer peer.Close()
				p := make([]byte, 1)
				_ = peer.SetDeadline(time.Now().Add(testnet.HangTimeout))
				for i := 0; !stop.Load(); i++ {
					if _, err := peer.Write([]byte{byte(i)}); err != nil {
						t.Errorf("ping %d: %v", i, err)
						return
					}
					if _, err := io.ReadFull(peer, p); err != nil || p[0] != byte(i) {
						t.Errorf("ping %d: got %d, %v", i, p[0], err)
						return
					}
					for range rand.IntN(3) {
						runtime.Gosched()
					}
				}
			})
			deeds := []func(){
				func() { settle(t, l) },
				func() {
					e := newEventFD(t, l, nil)
					e.fire()
					e.awaitCalls(t, 1)
					closeFD(t, e.FD)
				},
				func() {
					a, b := unixPair(t)
					defer unix.Close(b)
					other, err := l.NewFD(a, Plain)
					if err != nil {
						t.Errorf("NewFD: %v", err)
						return
					}
					read := start(func() (int, error) { return other.Read(make([]byte, 8)) })
					for range rand.IntN(10) {
						runtime.Gosched()
					}
					_, _ = unix.Write(b, []byte("x"))
					if r := await(t, "Read of the other one", read); r.n != 1 || r.err != nil {
						t.Errorf("Read of the other one: got %v, want 1, nil", r)
					}
					closeFD(t, other)
				},
				func() {
					_ = f.SetReadDeadline(time.Unix(1, 0))
					runtime.Gosched()
					_ = f.SetReadDeadline(time.Time{})
				},
				func() {
					_ = f.SetReadDeadline(time.Now().Add(time.Millisecond))
					time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
					_ = f.SetReadDeadline(time.Time{})
				},
				func() {
					called := make(chan error, 1)
					if f.OnReadable(func(err error) { called <- err }) == nil {
						testnet.Receive(t, "the callback", called)
					}
				},
				func() {
					_ = f.OnReadable(func(error) {})
					f.CancelOnReadable()
				},
			}
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end) && !t.Failed(); {
				deeds[rand.IntN(len(deeds))]()
				if rand.IntN(4) == 0 {
					time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // let it be alone for a while
				}
			}
			stop.Store(true)
			testnet.Within(t, "the pings", running.Wait)
		})
	}
}
