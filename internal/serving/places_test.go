package serving

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// placesOf makes places that only note what they start.
func placesOf(n int) (p *places, started *[]*Handshake) {
	p, started = new(places), new([]*Handshake)
	p.init(n, 0, func(h *Handshake) { *started = append(*started, h) })
	return p, started
}

func shakingPeerOf(n int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 32)
}

// A peer that has its share keeps no other from places, whether there are free ones or the other has to
// wait for its turn.
func TestPlacesHaveShares(t *testing.T) {
	p, started := placesOf(8)
	for hostile := range 4 {
		var shaking []*Handshake
		for range 100 {
			h := &Handshake{peer: shakingPeerOf(hostile)}
			shaking = append(shaking, h)
			p.enter(h)
		}
		if len(*started) != 2*(hostile+1) {
			t.Fatalf("with %d peers %d handshakes are under way, want 2 of each", hostile+1, len(*started))
		}
		if !slices.Equal((*started)[2*hostile:], shaking[:2]) {
			t.Error("a peer's first handshakes are not the first to be started")
		}
		if hostile == 2 {
			h := &Handshake{peer: shakingPeerOf(9)}
			p.enter(h)
			if last := (*started)[len(*started)-1]; last != h {
				t.Error("a peer without handshakes waits although a place is free")
			}
			p.leave(h)
			*started = (*started)[:6]
		}
	}
	honest := &Handshake{peer: shakingPeerOf(9)}
	p.enter(honest)
	if len(*started) != 8 {
		t.Fatal("more handshakes are under way than allowed")
	}
	p.leave((*started)[0])
	if last := (*started)[len(*started)-1]; last != honest {
		t.Errorf("the next place is given to %v, not to the peer that has none", last.peer)
	}
}

// A peer that comes last has one of the next three places, however many wait.
func TestPlacesHaveTurns(t *testing.T) {
	p, started := placesOf(8)
	for peer := range 100 {
		p.enter(&Handshake{peer: shakingPeerOf(peer)})
	}
	last := &Handshake{peer: shakingPeerOf(200)}
	p.enter(last)
	for _, h := range (*started)[:3] {
		p.enter(&Handshake{peer: h.peer})
		p.leave(h)
	}
	if !slices.Contains((*started)[8:], last) {
		t.Error("the peer that has come last has none of the next three places")
	}
}

// Handshakes come and go at random. No place is free that a waiting one may have, no peer has more than
// its share, each peer's start in their order, and all of them start.
func TestPlacesRandom(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		p, started := placesOf(1 + r.IntN(9))
		var entered, running []*Handshake
		took := 0
		check := func() {
			t.Helper()
			running = append(running, (*started)[took:]...)
			took = len(*started)
			if len(running) > p.max || len(running) != len(p.running) {
				t.Fatalf("seed %d: %d are under way, %d counted, %d allowed", seed, len(running), len(p.running), p.max)
			}
			waiting := 0
			for addr, peer := range p.peers {
				own := 0
				for _, h := range running {
					if h.peer == addr {
						own++
					}
				}
				waiting += len(peer.waiting)
				if own != peer.running || own > p.share {
					t.Fatalf("seed %d: a peer has %d under way, %d counted, %d allowed", seed, own, peer.running, p.share)
				}
				if len(running) < p.max && own < p.share && len(peer.waiting) > 0 {
					t.Fatalf("seed %d: a handshake waits for a place that is free", seed)
				}
			}
			if waiting != p.waiting {
				t.Fatalf("seed %d: %d wait, %d counted", seed, waiting, p.waiting)
			}
		}
		for range 200 {
			if r.IntN(2) == 0 {
				h := &Handshake{peer: shakingPeerOf(r.IntN(4))}
				entered = append(entered, h)
				p.enter(h)
			} else if len(running) > 0 {
				i := r.IntN(len(running))
				h := running[i]
				running = slices.Delete(running, i, i+1)
				p.leave(h)
			}
			check()
		}
		for len(running) > 0 {
			h := running[0]
			running = running[1:]
			p.leave(h)
			check()
		}
		if len(*started) != len(entered) || len(p.peers) != 0 || p.isWantedLocked() {
			t.Fatalf("seed %d: %d of %d were started, %d peers and %d queued are left",
				seed, len(*started), len(entered), len(p.peers), len(p.queue)+len(p.fresh))
		}
		for n := range 4 {
			isOther := func(h *Handshake) bool { return h.peer != shakingPeerOf(n) }
			if !slices.Equal(slices.DeleteFunc(slices.Clone(*started), isOther), slices.DeleteFunc(slices.Clone(entered), isOther)) {
				t.Fatalf("seed %d: a peer's handshakes were not started in their order", seed)
			}
		}
	}
}

// The more handshakes wait, the sooner those that wait for their clients lose their places.
func TestStallTime(t *testing.T) {
	for waiting, want := range map[int]time.Duration{0: time.Second, 8: time.Second / 2, 24: time.Second / 4, 1000: time.Second / 4} {
		p, _ := placesOf(8)
		p.waiting = waiting
		if got := time.Duration(p.stallTimeLocked()); got != want {
			t.Errorf("%d wait for 8 places: got %v, want %v", waiting, got, want)
		}
	}
}

// A handshake that was given up, and whose goroutine has not run since, doesn't keep others from being
// given up.
func TestSweepOnce(t *testing.T) {
	testnet.NoLeaks(t)
	p, _ := placesOf(2)
	now := monotime.Local()
	var running []*Handshake
	for i := range 2 {
		h := &Handshake{Cut: func() {}, peer: shakingPeerOf(i)}
		h.waitedAt.Store(now - int64(10-i)*int64(time.Second))
		running = append(running, h)
		p.enter(h)
	}
	p.enter(&Handshake{peer: shakingPeerOf(9)})
	for i, h := range running {
		p.sweep()
		if !h.over.Load() {
			t.Errorf("sweep %d did not give up the handshake that has waited for the longest", i)
		}
	}
	p.timer.Stop()
}

// A permit that is held for long is lent out while others wait, and counts no more; others follow in
// order.
func TestPermitsAreLent(t *testing.T) {
	var permits permits
	permits.init()
	permits.max = 1
	blocks, next := new(Handshake), new(Handshake)
	permits.compute(blocks)
	testnet.Within(t, "the permit of another", func() { permits.compute(next) })
	permits.rest(blocks) // which changes nothing
	if len(permits.running) != 1 || permits.running[next] == 0 {
		t.Errorf("%d compute, want one", len(permits.running))
	}
	permits.rest(next)
	testnet.Within(t, "a free permit", func() { permits.compute(blocks) })
	if len(permits.running) != 1 || permits.running[blocks] == 0 {
		t.Errorf("%d compute, want one", len(permits.running))
	}
}
