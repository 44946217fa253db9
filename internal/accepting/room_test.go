package accepting

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// idlers is an Idler whose connections are numbers. Closing one frees its slot at once.
type idlers struct {
	limits *Limits
	mu     sync.Mutex
	all    []*idler // guarded by mu
	closed []int    // guarded by mu
	looks  int      // guarded by mu
}

type idler struct {
	of    *idlers
	id    int
	since int64
	peer  netip.Addr
	keeps bool // refuses to be closed
	slow  bool // keeps its slot when it is closed
}

func (s *idlers) EachIdle(_ *Limits, do func(IdleConn, int64, netip.Addr)) {
	s.mu.Lock()
	s.looks++
	all := slices.Clone(s.all)
	s.mu.Unlock()
	for _, c := range all {
		do(c, c.since, c.peer)
	}
}

func (c *idler) CloseIdle(since int64) bool {
	s := c.of
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.all, c)
	if i < 0 || c.since != since || c.keeps {
		return false
	}
	s.all = slices.Delete(s.all, i, i+1)
	s.closed = append(s.closed, c.id)
	if !c.slow {
		s.limits.Release()
	}
	return true
}

// newFull returns limits without a free slot: n idle connections, of which number i has waited for n-i
// seconds, and whose peer is peer(i).
func newFull(n int, peer func(i int) string) (*Limits, *idlers) {
	l := (&Config{MaxConns: n}).Limits(new(Counts), func() {})
	s := &idlers{limits: l}
	now := monotime.Now()
	for i := range n {
		l.Force()
		s.all = append(s.all, &idler{of: s, id: i, since: now - int64(n-i)*int64(time.Second), peer: netip.MustParseAddr(peer(i))})
	}
	slices.Reverse(s.all) // so that the order is not that of the set
	l.AddIdler(s)
	return l, s
}

// admit has clients come, for each of which there must be room.
func admit(t *testing.T, l *Limits, clients int) {
	t.Helper()
	for range clients {
		if !l.Acquire() {
			t.Fatal("there is no room")
		}
	}
}

// wantClosed compares which connections were closed, in their order.
func (s *idlers) wantClosed(t *testing.T, want ...int) {
	t.Helper()
	if !slices.Equal(s.closed, want) {
		t.Errorf("got %v closed\nwant %v", s.closed, want)
	}
}

// ids returns the numbers from first on, and before end.
func ids(first, end int) (all []int) {
	for i := first; i < end; i++ {
		all = append(all, i)
	}
	return all
}

func apart(i int) string { return fmt.Sprintf("10.%d.%d.1", i/200, i%200) }

// Of 1,000 connections, those that have waited longest are closed, one for each client, in their order;
// and a look at all is good for many clients.
func TestRoomOrder(t *testing.T) {
	l, s := newFull(1000, apart)
	admit(t, l, 500)
	s.wantClosed(t, ids(0, 500)...)
	if got := l.counts.Load(MadeRoom); got != 500 {
		t.Errorf("%d connections were counted, want 500", got)
	}
	if s.looks > 40 { // two for each 32 to 63
		t.Errorf("got %d looks at all connections, want 40 at most", s.looks)
	}
}

// A connection that was used after a look, or is busy when its turn comes, is passed over.
func TestRoomUsedSince(t *testing.T) {
	l, s := newFull(100, apart)
	at := func(id int) *idler { return s.all[slices.IndexFunc(s.all, func(c *idler) bool { return c.id == id })] }
	l.Acquire() // picks 0 to 6
	at(1).since = monotime.Now()
	at(2).keeps = true
	l.Acquire()
	s.wantClosed(t, 0, 3)
}

// The peer with most idle connections loses its own as long as they are more than an eighth of all, and
// the others only what has waited longest afterwards. Addresses of one network of IPv6 are one peer.
func TestRoomShare(t *testing.T) {
	for name, greedy := range map[string]func(i int) string{
		"IPv4":           func(int) string { return "192.0.2.1" },
		"mapped":         func(i int) string { return []string{"192.0.2.1", "::ffff:192.0.2.1"}[i%2] },
		"a network":      func(i int) string { return fmt.Sprintf("2001:db8::%x", i+1) },
		"with a zone":    func(i int) string { return fmt.Sprintf("fe80::%x%%eth0", i+1) },
		"no own address": func(int) string { return "0.0.0.0" },
	} {
		t.Run(name, func(t *testing.T) {
			l, s := newFull(80, func(i int) string { // the oldest 20 are others', and 60 the peer's
				if i < 20 {
					return apart(i)
				}
				return greedy(i)
			})
			admit(t, l, 60)
			s.wantClosed(t, append(ids(20, 70), ids(0, 10)...)...) // until the peer has 10 left
		})
	}
}

// newDetached returns limits without a free slot, of two Idlers that share 80 connections: 0 to 29 have
// detached answers of one peer, 30 to 39 of another, and the others are idle.
func newDetached() (l *Limits, first, second *idlers) {
	l, first = newFull(80, func(i int) string {
		switch {
		case i < 30:
			return "192.0.2.1"
		case i < 40:
			return "192.0.2.2"
		}
		return apart(i)
	})
	second = &idlers{limits: l}
	all := first.all
	first.all = nil
	for _, c := range all {
		if c.id < 40 {
			c.since = Detached
		}
		if c.id%2 == 1 {
			c.of = second
		}
		c.of.all = append(c.of.all, c)
	}
	l.AddIdler(second)
	return l, first, second
}

// The detached answers of a peer that are more than its share make room before idle connections,
// whichever Idlers have them, and those within the share never.
func TestRoomDetached(t *testing.T) {
	l, first, second := newDetached()
	closed := func() (ids []int) { return slices.Sorted(slices.Values(slices.Concat(first.closed, second.closed))) }
	admit(t, l, 20)
	if ids := closed(); len(ids) != 20 || ids[19] >= 30 {
		t.Fatalf("got %v closed, want 20 of the peer that has 30", ids)
	}
	admit(t, l, 40)
	if ids := closed(); len(ids) != 60 || ids[19] >= 30 || ids[20] != 40 {
		t.Errorf("got %v closed, want all idle ones then", ids)
	}
	if l.Acquire() {
		t.Errorf("got %v closed, though each peer has no more than its share", closed())
	}
}

// A peer has too many detached answers for a moment: it may end some itself.
func TestRoomDetachedSince(t *testing.T) {
	l, first, second := newDetached()
	l.Acquire() // and picks more
	own := func(c *idler) bool { return c.id < 30 && c.id >= 10 }
	first.all, second.all = slices.DeleteFunc(first.all, own), slices.DeleteFunc(second.all, own)
	l.room.pickedAt -= int64(excessTime)
	l.Acquire()
	if ids := slices.Concat(first.closed, second.closed); len(ids) != 2 || !slices.Contains(ids, 40) {
		t.Errorf("got %v closed, want one of the peer that had more than its share, and the idle 40", ids)
	}
}

// If nothing can be closed Accept waits, until a slot is free or it may look again.
func TestRoomNone(t *testing.T) {
	woken := make(chan struct{}, 10)
	l := (&Config{MaxConns: 1}).Limits(new(Counts), func() { woken <- struct{}{} })
	if !l.Acquire() || l.MayAccept() || l.Acquire() {
		t.Fatal("without an Idler the limit is no limit")
	}
	s := &idlers{limits: l}
	busy := &idler{of: s, since: monotime.Now() - int64(time.Hour), keeps: true}
	s.all = []*idler{busy}
	l.AddIdler(s)
	<-woken
	if !l.MayAccept() {
		t.Error("a connection could be closed, and Accept does not look for clients")
	}
	if l.Acquire() {
		t.Error("got a slot, and none was free")
	}
	<-woken // by the end of the pause, as late as it comes
	s.mu.Lock()
	busy.keeps = false
	s.mu.Unlock()
	for !l.Acquire() {
		<-woken
	}
	l.RemoveIdler(s)
	l.Release()
	if !l.MayAccept() || !l.Acquire() || l.MayAccept() {
		t.Error("without an Idler again the limit is another")
	}
	var none *Limits
	if !none.MayAccept() || !none.Acquire() {
		t.Error("no limits refuse a client")
	}
}

// Connections that came to rest a moment ago are not closed, and count for their peer all the same.
func TestRoomRecent(t *testing.T) {
	l, s := newFull(3, func(i int) string { return []string{"192.0.2.1", "192.0.2.2", "192.0.2.2"}[i] })
	soon := monotime.Now() + int64(time.Hour) // in the future, so that no test is too slow
	for _, c := range s.all[:2] {
		c.since = soon
	}
	if l.Acquire() {
		t.Errorf("got %v closed, want none: the peer with more than its share has used its connections just now", s.closed)
	}
}

// A peer that uses more than its share all the time keeps no client waiting for long.
func TestRoomBusyPeer(t *testing.T) {
	woken := make(chan struct{}, 1000)
	l, s := newFull(80, func(i int) string {
		if i < 60 {
			return apart(i)
		}
		return "192.0.2.1"
	})
	l.wake = func() { woken <- struct{}{} }
	later := monotime.Now() + int64(time.Hour)
	for _, c := range s.all {
		if c.id >= 60 {
			c.since = later
		}
	}
	for range 60 {
		for !l.Acquire() {
			testnet.Receive(t, "the end of a pause", woken)
		}
	}
	s.wantClosed(t, ids(0, 60)...)
}

// A peer that comes back for each connection it loses costs a look for many clients, not one for each.
// It gets a sixteenth above its share, at most.
func TestRoomReturningPeer(t *testing.T) {
	const max, greedy = 1600, "192.0.2.1"
	l, s := newFull(max, func(i int) string {
		if i < max/peerShare+1 {
			return greedy
		}
		return apart(i)
	})
	count := func() (n int) {
		for _, c := range s.all {
			if c.peer.String() == greedy {
				n++
			}
		}
		return n
	}
	since := monotime.Now() - int64(time.Second)
	for i := range max {
		if !l.Acquire() {
			t.Fatal("there is no room")
		}
		s.all = append(s.all, &idler{of: s, id: max + i, since: since, peer: netip.MustParseAddr(greedy)})
		if n := count(); n > max/peerShare+max/16+2 {
			t.Fatalf("the peer has %d connections of %d", n, max)
		}
	}
	if s.looks > 2*max/16 {
		t.Errorf("got %d looks at all connections for %d clients, want %d at most", s.looks, max, 2*max/16)
	}
}

// A connection whose slot becomes free late is not the only one that is closed for a client, but no more
// than eight are closing at a time, however long it takes.
func TestRoomSlow(t *testing.T) {
	defer func(old time.Duration) { closingTime = old }(closingTime)
	closingTime = time.Hour
	woken := make(chan struct{}, 1)
	l, s := newFull(200, apart)
	l.wake = func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}
	for _, c := range s.all {
		c.slow = true
	}
	attempt := func(want int) {
		t.Helper()
		if l.Acquire() {
			t.Fatal("got a slot, and none was free")
		}
		l.MayAccept() // as Accept does
		if len(s.closed) != want {
			t.Fatalf("got %d connections closed, want %d", len(s.closed), want)
		}
	}
	for _, want := range []int{1, 2, 4, 8, 8, 8} {
		attempt(want)
		testnet.Receive(t, "the end of a pause", woken)
	}
	l.Release() // of one that was closed
	if !l.Acquire() {
		t.Fatal("got no slot, and one was free")
	}
	attempt(8) // 7 are closing: the next client gets one of their slots
	for range 7 {
		l.Release()
	}
	for range 7 {
		l.Acquire()
	}
	attempt(9)
	if got := l.counts.Load(MadeRoom); got != 9 {
		t.Errorf("got %d counted, want 9", got)
	}
	closingTime = 0 // they have gone on
	for len(s.closed) == 9 {
		testnet.Receive(t, "the end of a pause", woken)
		if l.Acquire() {
			t.Fatal("got a slot, and none was free")
		}
		l.MayAccept()
	}
}

// TestSilentFirst: connections whose header is overdue make room before idle ones, in the order in which
// they came; those whose header may still come stay.
func TestSilentFirst(t *testing.T) {
	l, s := newFull(10, apart)
	now := monotime.Now()
	silent := &idlers{limits: l}
	for i := range 5 {
		silent.all = append(silent.all, &idler{of: silent, id: i, since: now - int64(5-i)*int64(time.Minute)})
	}
	silent.all = append(silent.all, &idler{of: silent, id: 99, since: now + int64(time.Hour)}) // has just come
	l.AddAwaiting(silent, time.Minute)
	admit(t, l, 8)
	silent.wantClosed(t, ids(0, 5)...)
	s.wantClosed(t, ids(0, 3)...)
	l.RemoveIdler(s)
	if !l.MayAccept() {
		t.Error("without other Idlers: got no permission to look for a client")
	}
}

// TestLongHeaders: each peer has its share, all together have a bound, and freed memory can be had
// again.
func TestLongHeaders(t *testing.T) {
	var h LongHeaders
	const share = longBytesMax / longPeerShare
	peer := func(i int) netip.Prefix { return Peer(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) }
	if held, err := h.Hold(peer(0), 0, headerBytesFree); held != 0 || err != nil {
		t.Errorf("an ordinary header: got %d, %v, want 0, nil", held, err)
	}
	for i := range longPeerShare {
		held, err := h.Hold(peer(i), 0, headerBytesFree+share-1)
		if held != share-1 || err != nil {
			t.Fatalf("the share of peer %d: got %d, %v", i, held, err)
		}
		if held, err = h.Hold(peer(i), held, headerBytesFree+share); held != share || err != nil {
			t.Fatalf("one more byte of peer %d: got %d, %v", i, held, err)
		}
		if held, err := h.Hold(peer(i), 0, headerBytesFree+1); held != 0 || err != ErrLongHeaders {
			t.Errorf("more than the share of peer %d: got %d, %v, want 0, %v", i, held, err, ErrLongHeaders)
		}
	}
	if held, err := h.Hold(peer(longPeerShare), 0, headerBytesFree+1); held != 0 || err != ErrLongHeaders {
		t.Errorf("more than all: got %d, %v, want 0, %v", held, err, ErrLongHeaders)
	}
	h.Free(peer(1), share)
	if held, err := h.Hold(peer(longPeerShare), 0, headerBytesFree+1); held != 1 || err != nil {
		t.Errorf("after another has left: got %d, %v, want 1, nil", held, err)
	}
	h.Free(peer(longPeerShare), 1)
	for _, i := range []int{0, 2, 3} {
		h.Free(peer(i), share)
	}
	if h.Bytes() != 0 || len(h.peers) != 0 {
		t.Errorf("in the end: got %d bytes of %d peers, want none", h.Bytes(), len(h.peers))
	}
}
