package accepting

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/monotime"
)

// An Idler serves connections of a listener, and can close connections that wait between two requests.
type Idler interface {
	// EachIdle calls do for the connections of the listener that may be closed to make room: they wait
	// between two requests, or for a first one, and have nothing unread. since is when the wait began, in
	// the time of package monotime, and peer is the client. It also calls do for connections that wait
	// only for detached answers, with [Detached] for since. It may call do for others, which [IdleConn]
	// then refuses to close.
	EachIdle(l *Limits, do func(c IdleConn, since int64, peer netip.Addr))
}

// IdleConn is a connection of an Idler.
type IdleConn interface {
	// CloseIdle closes the connection as its idle timeout would, if it has waited since then and has
	// nothing unread, and reports whether it does. Its slot may become free later, if the client has to
	// be told first. If since is Detached, the answers end with [ErrShare].
	CloseIdle(since int64) bool
}

// Detached is the since of a connection on which all handlers have returned and all answers go on.
const Detached = 1

// ErrShare is the reason when the detached answers of a connection are cut to make room.
var ErrShare = errors.New("the client has more than its share of MaxConns")

// room makes room at MaxConns: when a client waits and no slot is free, it closes the connection that
// has waited longest between two requests. The order is exact, over all loops, and costs a connection
// nothing: a look at all connections picks the ones that have waited longest. They stay the longest
// until they are used, since all others begin later, so one look is good for many clients.
//
// One peer can't take all places: a peer that has more than an eighth of them with idle connections
// loses its own first. (It may have a sixteenth more until the next look.) If it keeps all of them
// busy, it has no idle ones to lose: then others are closed, after a pause in which its connections
// could have become idle.
//
// Connections with detached answers may wait for days, so they count separately: a peer may have
// another eighth of the places with them. Beyond that share they make room before idle ones, and
// within it never.
//
// Connections whose PROXY header is overdue go first: they have no request yet, and a peer could hold
// all places with them. Their peers are proxies, so no shares apply.
//
// A slot may become free later than its connection is closed, when the client has been told. So one
// connection is closed for a client. After a pause in which no slot has become free, two may be
// closing, then four, then eight. (nginx closes up to 32, and an eighth.)
//
//	waits   a client waits for a slot                          leaves by
//	even    makeRoom is called                                 room was made at once: the same; else odd
//	odd     the gate of Accept is shut, as without a room      a slot becomes free; the end of this pause
type room struct {
	any     atomic.Bool   // there are Idlers, or awaiting
	waits   atomic.Uint64 // odd until a slot is free, or there may be others to close
	closing atomic.Int64  // connections that were closed and whose slots are not free yet
	misses  atomic.Int64  // pauses that have ended without a slot, since a client has got one

	mu        sync.Mutex
	idlers    []Idler       // guarded by mu
	awaiting  Idler         // has the connections whose headers are awaited; nil: none are; guarded by mu
	silentMin time.Duration // how long they are left alone; guarded by mu
	silent    []candidate   // of awaiting, in the order in which they are closed, before those picked; guarded by mu
	silentAt  int64         // when silent was last filled; guarded by mu
	picked    []candidate   // in the order in which they are closed; guarded by mu
	pickedAt  int64         // when picked was last filled; guarded by mu
	busyAt    int64         // since when the peer with more than its share uses all it has; 0: none does; guarded by mu
	lastAt    int64         // when a connection was closed last; guarded by mu
}

// candidate is a connection that may be closed.
type candidate struct {
	conn  IdleConn
	since int64
}

const (
	// idleMin keeps connections whose client has its next request on the way. Busy clients don't lose
	// their connections to others, since they would only come back for them.
	idleMin = 100 * time.Millisecond

	// A peer's idle connections may have this part of the places, and at least one place. The same goes
	// for its connections with detached answers.
	peerShare = 8

	// excessTime is how long a peer's detached answers count as too many: it may have ended others.
	excessTime = 100 * time.Millisecond

	// pickedMost is how many connections a look picks, at most, and a sixteenth of them if they are
	// few: the work of a look is spread over that many clients.
	pickedMost = 1024

	// togetherMost is how many connections are closing at a time, at most.
	togetherMost = 8

	// roomPause is the time between two attempts, which is longer if there are many connections: a
	// look at one takes some 100 ns.
	roomPause    = 50 * time.Millisecond
	pausePerConn = time.Microsecond
)

// closingTime is how long a closing connection usually keeps its slot at most: longer than it takes to
// tell the client. If no slot has become free in that time, the connections have gone on, with a
// request that came at the last moment. Tests change it.
var closingTime = time.Second

// AddIdler makes i close connections when there is no room. A nil *Limits, and one without a limit,
// never asks it.
func (l *Limits) AddIdler(i Idler) {
	if l == nil || l.max == 0 {
		return
	}
	r := &l.room
	r.mu.Lock()
	r.idlers = append(r.idlers, i)
	r.any.Store(true)
	r.mu.Unlock()
	if l.full.Load() {
		l.wake()
	}
}

// SilentPart is the part of the time for a PROXY header after which a connection makes room for
// others. With the default, 5 seconds, that is half a second: time to send a lost packet again twice.
const SilentPart = 10

// AddAwaiting makes the connections of i, whose headers are awaited, make room before all others, when
// they have waited that long. The listener calls it once, before it accepts.
func (l *Limits) AddAwaiting(i Idler, silentMin time.Duration) {
	if l == nil || l.max == 0 {
		return
	}
	r := &l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awaiting, r.silentMin = i, silentMin
	r.any.Store(true)
}

// RemoveIdler undoes AddIdler.
func (l *Limits) RemoveIdler(i Idler) {
	if l == nil || l.max == 0 {
		return
	}
	r := &l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idlers = slices.DeleteFunc(r.idlers, func(other Idler) bool { return other == i })
	r.picked = nil
	r.any.Store(len(r.idlers) > 0 || r.awaiting != nil)
}

// MayAccept reports whether Accept may look for a client: a slot is free, or could be made free for one.
// If not, wake is called when that changes.
func (l *Limits) MayAccept() bool {
	if l == nil || l.max == 0 || !l.isFull() {
		return true
	}
	if l.room.any.Load() && !l.room.clientWaits() {
		return true
	}
	if !l.full.Swap(true) {
		l.counts.Add(LimitWaits)
	}
	return !l.isFull()
}

// Acquire takes a slot for a client that waits: if no slot is free it closes idle connections. It
// doesn't wait for them: if it returns false, MayAccept reports false until a slot may be had.
func (l *Limits) Acquire() bool {
	if l == nil || l.max == 0 {
		return l == nil || l.take()
	}
	r := &l.room
	if l.take() {
		if r.misses.Load() != 0 {
			r.misses.Store(0)
		}
		return true
	}
	waits := r.waits.Load()
	if !r.any.Load() || waits%2 == 1 {
		return false
	}
	pause := l.makeRoom()
	if l.take() {
		return true
	}
	if waits++; r.waits.CompareAndSwap(waits-1, waits) { // or another call of Accept has begun to wait
		time.AfterFunc(pause, func() {
			if r.waits.CompareAndSwap(waits, waits+1) {
				r.misses.Add(1)
				l.wake()
			}
		})
	}
	return false
}

// clientWaits reports whether a client waits for a slot.
func (r *room) clientWaits() bool { return r.waits.Load()%2 == 1 }

// stopWaiting notes that a slot has become free, or may have.
func (r *room) stopWaiting() {
	if waits := r.waits.Load(); waits%2 == 1 {
		r.waits.CompareAndSwap(waits, waits+1)
	}
}

// released notes that a slot has become free, of whichever connection.
func (r *room) released() {
	for n := r.closing.Load(); n > 0 && !r.closing.CompareAndSwap(n, n-1); n = r.closing.Load() {
	}
}

// makeRoom closes connections until a slot is free, or some are about to be. It returns the time until
// the next attempt, if no slot becomes free.
func (l *Limits) makeRoom() (pause time.Duration) {
	r := &l.room
	r.mu.Lock()
	defer r.mu.Unlock()
	pause = roomPause
	now := monotime.Now()
	looked := l.pickSilentLocked(now)
	if len(r.picked) > 0 && r.picked[0].since == Detached && now-r.pickedAt > int64(excessTime) {
		r.picked = nil
	}
	if len(r.silent) == 0 && len(r.picked) == 0 {
		looked += l.pickLocked(now)
	}
	pause += time.Duration(looked) * pausePerConn
	if now-r.lastAt > int64(closingTime) {
		r.closing.Store(0)
	}
	most := min(togetherMost, int64(1)<<min(r.misses.Load(), togetherMost))
	for r.closing.Load() < most && l.isFull() {
		c, ok := r.nextLocked()
		if !ok {
			break
		}
		r.closing.Add(1) // before its slot becomes free
		if c.conn.CloseIdle(c.since) {
			l.counts.Add(MadeRoom)
			r.lastAt = now
		} else {
			r.released()
		}
	}
	return pause
}

// nextLocked returns the next connection to close.
func (r *room) nextLocked() (c candidate, ok bool) {
	from := &r.silent
	if len(*from) == 0 {
		from = &r.picked
	}
	if len(*from) == 0 {
		return c, false
	}
	c = (*from)[0]
	(*from)[0] = candidate{}
	*from = (*from)[1:]
	return c, true
}

// pickSilentLocked picks connections whose header is overdue, if the last look is some time ago. It
// returns how many it has looked at.
func (l *Limits) pickSilentLocked(now int64) (looked int) {
	r := &l.room
	if r.awaiting == nil || len(r.silent) > 0 || r.silentAt != 0 && now-r.silentAt < int64(r.silentMin/4) {
		return 0
	}
	r.silentAt = now
	r.awaiting.EachIdle(l, func(c IdleConn, since int64, _ netip.Addr) {
		if looked++; since <= now-int64(r.silentMin) {
			r.silent = append(r.silent, candidate{c, since})
		}
	})
	r.silent = longest(r.silent, pickedMost)
	return looked
}

// pickLocked picks connections to close. First come connections with detached answers, as many as
// their peer has beyond its share. Then come the connections that have waited longest: first the
// excess ones of a peer with more than its share, and then those of all peers. It returns how many
// connections there are.
func (l *Limits) pickLocked(now int64) (all int) {
	r := &l.room
	r.pickedAt = now
	share := max(int(l.max)/peerShare, 1)
	each := func(do func(c IdleConn, since int64, peer netip.Prefix)) {
		for _, i := range r.idlers {
			i.EachIdle(l, func(c IdleConn, since int64, peer netip.Addr) { do(c, since, Peer(peer)) })
		}
	}
	peers, detached := make(map[netip.Prefix]int), make(map[netip.Prefix]int)
	var greediest netip.Prefix
	each(func(_ IdleConn, since int64, peer netip.Prefix) {
		all++
		if since == Detached {
			detached[peer]++
			return
		}
		peers[peer]++
		if peers[peer] > peers[greediest] {
			greediest = peer
		}
	})
	most := min(1+all/16, pickedMost)
	over := max(peers[greediest]-share, 0)
	var excess, greedy, others []candidate
	each(func(c IdleConn, since int64, peer netip.Prefix) {
		if since == Detached {
			if detached[peer] > share && len(excess) < most {
				detached[peer]--
				excess = append(excess, candidate{c, since})
			}
			return
		}
		to := &others
		if over > 0 && peer == greediest {
			to = &greedy
		}
		if since > now-int64(idleMin) {
			return
		}
		if *to = append(*to, candidate{c, since}); len(*to) >= 4*most {
			*to = longest(*to, most)
		}
	})
	if over == 0 || len(greedy) > 0 {
		r.busyAt = 0
	} else if r.busyAt == 0 {
		r.busyAt = now
	}
	r.picked, most = excess, most-len(excess)
	if r.busyAt != 0 && now-r.busyAt <= int64(idleMin) {
		return all
	}
	greedy = longest(greedy, most)
	n := min(over, len(greedy))
	r.picked = append(append(r.picked, greedy[:n]...), longest(append(greedy[n:], others...), most-n)...)
	return all
}

// longest returns the n that have waited longest, sorted.
func longest(all []candidate, n int) []candidate {
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.since, b.since) })
	clear(all[min(n, len(all)):])
	return all[:min(n, len(all))]
}
