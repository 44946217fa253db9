package serving

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// places are the places of the handshakes that are under way, shared out by peer (see accepting.Peer).
// One peer has a quarter of them at most. Where handshakes wait, peers take turns: first the one that
// has waited longest, then the one that came last, which would wait behind thousands otherwise. So the
// handshakes of one peer, however many, keep no other's waiting.
//
// Many peers can still fill all places with handshakes that never go on, and a client that is far
// away, or behind a function of the program's that waits, is no enemy. So while a handshake waits
// for a place, one that has waited for stallTime in all loses its own, and goes on aside. When too
// many are aside the peer that has the most of them loses one, which fails: the one that has
// waited for its client for the longest. That bounds what hostile peers can do, and doesn't end
// it: beyond max places per stallTimeMin of new ones, others wait for longer and longer, and those
// aside are cut off that take longer than stallTime.
//
//	peer      has waiting handshakes   and has its share   leaves by
//	content   no                       any                 enter: content, queued or sated
//	queued    yes                      no                  dispatch, which gives it a place: any
//	sated     yes                      yes                 leave: queued
//
// If a place is free, no peer is queued.
type places struct {
	// immutable
	max, share int
	asideMax   int
	start      func(h *Handshake) // called without mu; h has a place

	mu      sync.Mutex
	running map[*Handshake]bool
	aside   map[*Handshake]bool // that go on, and have lost their places
	waiting int
	peers   map[netip.Prefix]*shakingPeer // those that have handshakes
	fresh   []*shakingPeer                // queued, and had no handshake before; the last has come last
	queue   []*shakingPeer                // the others queued; the first has waited for the longest
	picks   int                           // counts
	timer   *time.Timer                   // sweeps; set while handshakes wait
	set     bool
}

// shakingPeer is a peer that has handshakes. The fields are guarded by places.mu.
type shakingPeer struct {
	running int
	aside   int
	waiting []*Handshake // first in, first out
	queued  bool
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

func (p *places) init(n, aside int, start func(h *Handshake)) {
	p.max, p.share, p.asideMax, p.start = n, (n+3)/4, aside, start
	p.running, p.aside = make(map[*Handshake]bool), make(map[*Handshake]bool)
	p.peers = make(map[netip.Prefix]*shakingPeer)
}

// enter starts h now, or once it has a place.
func (p *places) enter(h *Handshake) {
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
		peer.queued = true
		p.fresh = append(p.fresh, peer)
	}
	p.queueLocked(peer)
	next := p.dispatchLocked()
	p.sweepSoonLocked()
	p.mu.Unlock()
	p.startAll(next)
}

// leave gives h's place to another, if it still has one.
func (p *places) leave(h *Handshake) {
	p.mu.Lock()
	next := p.removeLocked(h)
	p.mu.Unlock()
	p.startAll(next)
}

// removeLocked takes h out, and returns what has a place now.
func (p *places) removeLocked(h *Handshake) (next []*Handshake) {
	peer := p.peers[h.peer]
	switch {
	case p.running[h]:
		delete(p.running, h)
		peer.running--
	case p.aside[h]:
		delete(p.aside, h)
		peer.aside--
	default:
		return nil // it was given up aside
	}
	if peer.running+peer.aside+len(peer.waiting) == 0 {
		delete(p.peers, h.peer)
	}
	p.queueLocked(peer)
	return p.dispatchLocked()
}

// queueLocked puts a peer that may have a place, and needs one, in the queue.
func (p *places) queueLocked(peer *shakingPeer) {
	if !peer.queued && len(peer.waiting) > 0 && peer.running < p.share {
		peer.queued = true
		p.queue = append(p.queue, peer)
	}
}

// dispatchLocked gives free places to those whose turn it is, and returns them.
func (p *places) dispatchLocked() (next []*Handshake) {
	for len(p.running) < p.max && p.isWantedLocked() {
		var peer *shakingPeer
		var h *Handshake
		switch p.picks++; {
		case len(p.fresh) == 0 || p.picks%3 == 0 && len(p.queue) > 0:
			peer, p.queue = takeFirst(p.queue)
		case p.picks%3 == 1:
			peer, p.fresh = takeFirst(p.fresh)
		default:
			peer, p.fresh = takeLast(p.fresh)
		}
		h, peer.waiting = takeFirst(peer.waiting)
		peer.queued = false
		peer.running++
		p.waiting--
		p.running[h] = true
		p.queueLocked(peer)
		next = append(next, h)
	}
	return next
}

// isWantedLocked reports whether a peer is queued.
func (p *places) isWantedLocked() bool { return len(p.queue)+len(p.fresh) > 0 }

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

func (p *places) startAll(next []*Handshake) {
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

// sweep takes places away that others wait for, as many as wait at most: first those of the peers that
// have the most places, and of these first those that have waited for the longest.
func (p *places) sweep() {
	now := monotime.Local()
	p.mu.Lock()
	p.set = false
	long := p.stallTimeLocked()
	stalled := p.stalledLocked(p.running, now, func(h *Handshake, peer *shakingPeer) (counts bool, ofPeer int) {
		isWanted := len(peer.waiting) > 0 || p.isWantedLocked()
		return isWanted && h.stalls(now, long), peer.running
	})
	var crowd []stalledHandshake // those aside that may be given up
	if len(p.aside)+len(stalled) > p.asideMax {
		crowd = p.stalledLocked(p.aside, now, func(h *Handshake, peer *shakingPeer) (counts bool, ofPeer int) {
			return h.waited(now) >= long, peer.aside
		})
	}
	var lost, next []*Handshake
	for _, s := range stalled[:min(len(stalled), p.waiting)] {
		if len(p.aside) >= p.asideMax {
			if len(crowd) == 0 || p.peers[s.peer].aside >= crowd[0].ofPeer {
				if s.waited >= long {
					lost = append(lost, s.Handshake) // which keeps its place until its goroutine knows
				}
				continue
			}
			lost = append(lost, crowd[0].Handshake)
			next = append(next, p.removeLocked(crowd[0].Handshake)...)
			crowd = crowd[1:]
		}
		next = append(next, p.setAsideLocked(s.Handshake)...)
	}
	p.sweepSoonLocked()
	p.mu.Unlock()
	p.startAll(next)
	for _, h := range lost {
		h.giveUp()
	}
}

// setAsideLocked takes h's place away, and returns what has one now.
func (p *places) setAsideLocked(h *Handshake) (next []*Handshake) {
	peer := p.peers[h.peer]
	delete(p.running, h)
	p.aside[h] = true
	peer.running--
	peer.aside++
	p.queueLocked(peer)
	return p.dispatchLocked()
}

// stalledHandshake is a handshake that takes long.
type stalledHandshake struct {
	*Handshake
	ofPeer int // how many its peer has
	waited int64
}

// stalledLocked returns those of a set that count, in the order in which they lose what they have.
func (p *places) stalledLocked(set map[*Handshake]bool, now int64,
	look func(h *Handshake, peer *shakingPeer) (counts bool, ofPeer int)) (all []stalledHandshake) {
	for h := range set {
		if h.over.Load() {
			continue // it was given up before, and leaves once its goroutine runs
		}
		if counts, ofPeer := look(h, p.peers[h.peer]); counts {
			all = append(all, stalledHandshake{h, ofPeer, h.waited(now)})
		}
	}
	slices.SortFunc(all, func(a, b stalledHandshake) int {
		return cmp.Or(cmp.Compare(b.ofPeer, a.ofPeer), cmp.Compare(b.waited, a.waited))
	})
	return all
}
