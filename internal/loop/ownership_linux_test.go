package loop

import (
	"net"
	"runtime"
	"testing"

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

// No goroutine polls when the event comes, or one in Read does. That goes on waiting, or is woken, as it
// would be if the loop's goroutine did.
func TestPollOwnership(t *testing.T) {
	for _, event := range ownershipEvents {
		t.Run(event.name, func(t *testing.T) {
			f, peer := newLonePair(t, overTCP)
			event.do(t, f, peer)
		})
		t.Run(event.name+", with a reader", func(t *testing.T) {
			f, peer := newLonePair(t, overTCP)
			read := start(func() (int, error) { return f.Read(make([]byte, 1)) })
			awaitOwner(t, f.loop, ownedByWaiter)
			event.do(t, f, peer)
			want := error(nil)
			if f.life.closed() {
				want = ErrClosed
			} else {
				mustWrite(t, peer, "last")
			}
			if r := await(t, "Read", read); r.err != want {
				t.Errorf("Read: got %v, want %v", r, want)
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
