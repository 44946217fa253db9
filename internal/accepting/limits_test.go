package accepting

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestSlots makes more goroutines take slots than there are slots. Never more are taken than
// allowed, and a goroutine that waits for a slot is woken.
func TestSlots(t *testing.T) {
	const slots, goroutines, rounds = 3, 12, 500
	var mu sync.Mutex
	changed := make(chan struct{}) // guarded by mu
	wake := func() {
		mu.Lock()
		defer mu.Unlock()
		close(changed)
		changed = make(chan struct{})
	}
	var counts Counts
	config := Config{MaxConns: slots}
	l := config.Limits(&counts, wake)
	acquire := func() {
		for {
			mu.Lock()
			wait := changed
			mu.Unlock()
			if !l.MayAccept() {
				<-wait
			} else if l.Acquire() {
				return
			}
		}
	}
	var taken atomic.Int64
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for range rounds {
				acquire()
				if n := taken.Add(1); n > slots {
					t.Errorf("got %d slots taken, want at most %d", n, slots)
				}
				taken.Add(-1)
				l.Release()
			}
		})
	}
	testnet.Within(t, "all goroutines", all.Wait)
	if n := l.Open(); n != 0 {
		t.Errorf("got %d slots taken at the end, want 0", n)
	}
	l.Force()
	for l.Acquire() {
	}
	l.Force() // even if none is free
	if n := l.Open(); n != slots+1 {
		t.Errorf("got %d slots taken, want %d", n, slots+1)
	}
	waits := counts.Load(LimitWaits)
	for range 2 { // the first call begins a wait
		if l.MayAccept() || counts.Load(LimitWaits) != waits+1 {
			t.Errorf("got %d waits, want one more than %d", counts.Load(LimitWaits), waits)
		}
	}
}

// TestIsWaiting: Accept waits when it has found no slot and none has become free since; if connections
// may be closed for a client, only as long as one waits.
func TestIsWaiting(t *testing.T) {
	want := func(what string, l *Limits, want bool) {
		t.Helper()
		if got := l.IsWaiting(); got != want {
			t.Errorf("%s: got %t, want %t", what, got, want)
		}
	}
	want("no limits", nil, false)
	l := (&Config{MaxConns: 1}).Limits(new(Counts), func() {})
	want("a free slot", l, false)
	l.Force()
	want("no free slot, and Accept has not looked", l, false)
	l.MayAccept()
	want("no free slot", l, true)
	l.Release()
	want("a free slot again", l, false)

	l, _ = newFull(10, apart)
	want("idle connections", l, false)
	l.MayAccept()
	want("idle connections, and Accept has looked", l, false)
	l.room.waits.Store(1) // as Acquire does for a client
	l.MayAccept()
	want("a client", l, true)
	l.room.waits.Store(2) // as after a pause
	want("no client comes back", l, false)
	l.room.waits.Store(3)
	l.Release()
	want("a slot for the client", l, false)
}

// TestAdmit: an unwanted connection is refused once, even if OnAccept panics, and OnClose is called
// before its slot is free.
func TestAdmit(t *testing.T) {
	var counts Counts
	local, remote := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	var l *Limits
	closed := 0
	config := Config{
		OnAccept: func(_, peer netip.AddrPort) bool {
			if peer == local {
				panic("no")
			}
			return peer == remote
		},
		OnClose: func(_, peer netip.AddrPort) {
			if closed++; peer != remote || l.Open() != 1 {
				t.Errorf("OnClose: got %v with %d open, want %v with 1", peer, l.Open(), remote)
			}
		},
	}
	l = config.Limits(&counts, func() { t.Error("wake was called without a limit") })
	for _, c := range []struct {
		peer   netip.AddrPort
		wanted bool
	}{{remote, true}, {local, false}, {netip.AddrPort{}, false}} {
		refused, wanted := 0, false
		l.Acquire()
		func() {
			defer func() { _ = recover() }()
			wanted = l.Admit(local, c.peer, func() {
				refused++
				l.Release()
			})
		}()
		if wanted != c.wanted || wanted != (refused == 0) || refused > 1 {
			t.Errorf("%v: got %t, refused %d times, want %t", c.peer, wanted, refused, c.wanted)
		}
		if wanted {
			l.Closed(local, c.peer)
		}
	}
	if n := counts.Load(Refused); n != 1 || closed != 1 || l.Open() != 0 {
		t.Errorf("got %d refused, %d closed, %d open, want 1, 1, 0", n, closed, l.Open())
	}
}

// TestNoLimits: without options everything is allowed.
func TestNoLimits(t *testing.T) {
	l := new(Config).Limits(nil, nil)
	if l != nil {
		t.Fatalf("got %v, want nil", l)
	}
	l.Force()
	if !l.MayAccept() || !l.Acquire() || l.WantsAddrs() || !l.Admit(netip.AddrPort{}, netip.AddrPort{}, nil) || l.Open() != 0 {
		t.Error("a nil *Limits refuses something")
	}
	l.Closed(netip.AddrPort{}, netip.AddrPort{})
	l.Release()
}
