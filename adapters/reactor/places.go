package reactor

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// places are the places of the handshakes that are under way. They are shared out by peers (see
// accepting.Peer): one peer has a quarter of them at most, and where handshakes have to wait the peers
// have their turns: those that have waited for the longest, and those that have come last, which would
// have to wait behind thousands otherwise. So one peer's handshakes keep no other's from theirs,
// however many they are.
//
// Many peers can still fill all places with handshakes that never go on. So while a handshake waits
// for a place, one that has waited for its client for stallTime in all loses its own. That bounds
// what such peers can do, and doesn't end it: beyond max places per stallTimeMin of new ones,
// others wait for longer and longer.
//
//	peer      has waiting handshakes   and has its share   leaves by
//	content   no                       any                 enter: content, in turn or sated
//	in turn   yes                      no                  dispatch, which gives it a place: any
//	sated     yes                      yes                 leave: in turn
//
// If a place is free, no peer is in turn.
type places struct {
	// immutable
	max, share int
	start      func(h *handshake) // called without mu; h has a place

	mu      sync.Mutex
	running map[*handshake]bool
	waiting int
	peers   map[netip.Prefix]*shakingPeer // those that have handshakes
	fresh   []*shakingPeer                // in turn, and had no handshake before; the last has come last
	turns   []*shakingPeer                // the others in turn; the first has waited for the longest
	turn    int                           // counts
	timer   *time.Timer                   // sweeps; set while handshakes wait
	set     bool
}

// shakingPeer is a peer that has handshakes. The fields are guarded by places.mu.
type shakingPeer struct {
	running int
	waiting []*handshake // first in, first out
	inTurn  bool
}

// stallTime is how long a handshake may wait for its client, all its waits together, if others wait for
// its place: a client that is far away needs two round trips. The more wait the shorter it is, down to
// stallTimeMin: with twice as many handshakes as there are places, half as long. So more places change
// hands when more clients stop, and those who wait are those who are near.
const (
	stallTime    = int64(time.Second)
	stallTimeMin = stallTime / 4
)

// stallTimeLocked returns how long that is now.
func (p *places) stallTimeLocked() int64 {
	return max(stallTimeMin, stallTime*int64(p.max)/int64(p.max+p.waiting))
}

// sweepTime is how often handshakes are looked for that have waited for longer.
const sweepTime = 100 * time.Millisecond

func (p *places) init(n int, start func(h *handshake)) {
	p.max, p.share, p.start = n, (n+3)/4, start
	p.running = make(map[*handshake]bool)
	p.peers = make(map[netip.Prefix]*shakingPeer)
}

// enter starts h now, or once it has a place.
func (p *places) enter(h *handshake) {
	p.mu.Lock()
	peer := p.peers[h.peer]
	isFresh := peer == nil
	if isFresh {
		peer = new(shakingPeer)
		p.peers[h.peer] = peer
	}
	peer.waiting = append(peer.waiting, h)
	p.waiting++
	if isFresh {
		peer.inTurn = true
		p.fresh = append(p.fresh, peer)
	}
	p.queueLocked(peer)
	next := p.dispatchLocked()
	p.sweepSoonLocked()
	p.mu.Unlock()
	p.startAll(next)
}

// leave gives h's place to another.
func (p *places) leave(h *handshake) {
	p.mu.Lock()
	delete(p.running, h)
	peer := p.peers[h.peer]
	if peer.running--; peer.running == 0 && len(peer.waiting) == 0 {
		delete(p.peers, h.peer)
	}
	p.queueLocked(peer)
	next := p.dispatchLocked()
	p.mu.Unlock()
	p.startAll(next)
}

// queueLocked puts a peer that may have a place, and needs one, in turn.
func (p *places) queueLocked(peer *shakingPeer) {
	if !peer.inTurn && len(peer.waiting) > 0 && peer.running < p.share {
		peer.inTurn = true
		p.turns = append(p.turns, peer)
	}
}

// dispatchLocked gives free places to those whose turn it is, and returns them.
func (p *places) dispatchLocked() (next []*handshake) {
	for len(p.running) < p.max && p.isWantedLocked() {
		var peer *shakingPeer
		var h *handshake
		switch p.turn++; {
		case len(p.fresh) == 0 || p.turn%3 == 0 && len(p.turns) > 0:
			peer, p.turns = takeFirst(p.turns)
		case p.turn%3 == 1:
			peer, p.fresh = takeFirst(p.fresh)
		default:
			peer, p.fresh = takeLast(p.fresh)
		}
		h, peer.waiting = takeFirst(peer.waiting)
		peer.inTurn = false
		peer.running++
		p.waiting--
		p.running[h] = true
		p.queueLocked(peer)
		next = append(next, h)
	}
	return next
}

// isWantedLocked reports whether a peer is in turn.
func (p *places) isWantedLocked() bool { return len(p.turns)+len(p.fresh) > 0 }

// takeFirst and takeLast take an element out of a queue.
func takeFirst[T any](queue []*T) (first *T, rest []*T) {
	first, queue[0] = queue[0], nil
	if len(queue) == 1 {
		return first, nil
	}
	return first, queue[1:]
}

func takeLast[T any](queue []*T) (last *T, rest []*T) {
	i := len(queue) - 1
	last, queue[i] = queue[i], nil
	return last, queue[:i]
}

func (p *places) startAll(next []*handshake) {
	for _, h := range next {
		p.start(h)
	}
}

// sweepSoonLocked makes sweep run if handshakes wait.
func (p *places) sweepSoonLocked() {
	switch {
	case p.waiting == 0 || p.set:
		return
	case p.timer == nil:
		p.timer = time.AfterFunc(sweepTime, p.sweep)
	default:
		p.timer.Reset(sweepTime)
	}
	p.set = true
}

// sweep closes handshakes whose places others wait for, as many as wait at most: first those of the
// peers that have the most places, and of these first those that have waited for the longest.
func (p *places) sweep() {
	now := monotime.Now()
	p.mu.Lock()
	p.set = false
	var stalled []stalledHandshake
	waiting, stall := p.waiting, p.stallTimeLocked()
	for h := range p.running {
		if h.over.Load() {
			continue // it was given up before, and leaves once its goroutine runs
		}
		peer := p.peers[h.peer]
		isWanted := len(peer.waiting) > 0 || p.isWantedLocked()
		if waited := h.waited(now); isWanted && waited >= stall {
			stalled = append(stalled, stalledHandshake{h, peer.running, waited})
		}
	}
	p.sweepSoonLocked()
	p.mu.Unlock()
	slices.SortFunc(stalled, func(a, b stalledHandshake) int {
		return cmp.Or(cmp.Compare(b.ofPeer, a.ofPeer), cmp.Compare(b.waited, a.waited))
	})
	for _, s := range stalled[:min(len(stalled), waiting)] {
		s.giveUp()
	}
}

// stalledHandshake is a handshake that has waited for its client for too long.
type stalledHandshake struct {
	*handshake
	ofPeer int // that are under way
	waited int64
}
