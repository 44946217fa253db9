package serving

import (
	"maps"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/sockaddr"
)

// Handshakes are the handshakes of a server. All methods are safe for concurrent use, and none blocks.
//
// As many compute at a time as there were processors when the server was made: more would not be done
// sooner, and the loops would wait behind all of them. Those that have begun go first, so few are under
// way however many clients come at once. The others wait without a goroutine, and peers (see
// accepting.Peer) take turns to begin one.
//
// The rest of those under way wait for their clients, which may be far away, or never go on. So there
// are places for youngMax that have begun within youngTime, half of them for one peer, and for max in
// all. While all places are taken and others wait, those that are no longer young and wait for their
// clients lose theirs, and fail: first those of the peer that has the most, and of these the oldest.
type Handshakes struct {
	// immutable
	max             int // under way
	youngMax, share int // of them young: of all peers, of each
	permits         int // that compute

	mu        sync.Mutex
	all       map[*Handshake]bool // that have not left
	closed    bool
	running   map[*Handshake]bool           // have a place
	young     int                           // of them, that have begun within youngTime, as the last sweep knows
	computing int                           // have a permit
	resuming  []resuming                    // wait for one; first in, first out, as the others below
	waiting   int                           // wait to begin
	peers     map[netip.Prefix]*shakingPeer // have handshakes that have a place, or wait to begin
	fresh     []*shakingPeer                // have only some that wait; the last has come last
	queue     []*shakingPeer                // the others that have some, and not their share of the young
	begun     int                           // counts handshakes
	sweeping  bool                          // a timer will call sweep, as handshakes wait for a place
}

// shakingPeer is a peer that has handshakes. The fields are guarded by Handshakes.mu.
type shakingPeer struct {
	running int
	young   int
	waiting []*Handshake
	queued  bool
}

// resuming is a handshake that waits until permit is closed.
type resuming struct {
	*Handshake
	permit chan struct{}
}

const (
	// permitTime is how long a permit is held at most. A handshake computes for a millisecond or two, and
	// for some more while the processors are busy. But crypto/tls calls functions of the tls.Config
	// meanwhile, which may block: GetCertificate may ask another server. Then others go on.
	permitTime = 20 * time.Millisecond

	// youngTime is how long a handshake is young: a client that is far away needs two round trips. It is
	// shorter while many wait.
	youngTime = time.Second

	// sweepTime is how often those are looked for that are no longer.
	sweepTime = 100 * time.Millisecond
)

// NewDefaultHandshakes makes 16,384 places, 1,024 of them for young handshakes, of some 30 KB each.
func NewDefaultHandshakes() *Handshakes { return NewHandshakes(16<<10, 1<<10) }

// NewHandshakes makes the places for most handshakes, and for young ones among them.
func NewHandshakes(most, young int) *Handshakes {
	return &Handshakes{
		max: most, youngMax: young, share: (young + 1) / 2, permits: runtime.GOMAXPROCS(0),
		all: make(map[*Handshake]bool), running: make(map[*Handshake]bool),
		peers: make(map[netip.Prefix]*shakingPeer),
	}
}

// Handshake is an accepted connection before the layer above knows it. Make it with its exported fields,
// and give it to Begin or Enter.
//
//	state     where                                leaves by
//	silent    on its loop: no goroutine            bytes come: waiting; the deadline passes, or it is
//	                                               closed: ended
//	waiting   in its peer's queue: no goroutine    there are a place and a permit for it: computing
//	computing on a goroutine                       Wait: resting; Do returns: ended
//	resting   on that goroutine, for its client    Resume: resuming; it is given up, of which Do learns
//	resuming  on that goroutine, for a permit      there is one: computing
//
// Begin skips silent and waiting where there is no loop: a connection has a goroutine from its beginning
// then, and needs no place.
type Handshake struct {
	// Do performs the handshake, and passes the connection on if Finish allows it. It has a goroutine,
	// and may end it (runtime.Goexit). It reads and writes between Wait and Resume.
	Do func(h *Handshake)

	// Cut makes reads and writes of Do's fail. It must not block.
	Cut func()

	// Lost is called instead of Do if the client is gone, or has let the deadline pass, before it has
	// sent anything. It must not block, and may run on the connection's loop. Only Begin needs it.
	Lost func(err error)

	// immutable
	of   *Handshakes
	peer netip.Prefix // see accepting.Peer

	// atomic
	over atomic.Bool // it is finished, or was given up

	// guarded by Handshakes.mu
	begun  int64       // when, of monotime.Local
	young  bool        // counted so: see ageLocked
	rests  bool        // it waits for its client
	permit *time.Timer // takes the permit away; nil: it has none
}

// Begin performs the handshake of an accepted connection when its client has sent something, for
// which it waits on the connection's loop. The caller has set the deadline. After Close it calls
// Cut and Lost.
func (s *Handshakes) Begin(nc net.Conn, h *Handshake) {
	if !s.add(nc, h) {
		h.Cut()
		h.Lost(net.ErrClosed)
		return
	}
	pc, ok := nc.(*percore.Conn)
	if !ok || pc.Loop() == nil || monotime.InBubble() { // loops are outside of bubbles
		go func() {
			h.Resume()
			h.run()
		}()
		return
	}
	if err := pc.OnReadable(h.ready); err != nil {
		h.ready(err)
	}
}

// Enter performs a handshake whose client has sent something. There is no end for it but its own: Close
// must not have been called.
func (s *Handshakes) Enter(nc net.Conn, h *Handshake) {
	s.add(nc, h)
	s.enter(h)
}

// Close gives all handshakes up, and those that come later.
func (s *Handshakes) Close() {
	s.mu.Lock()
	s.closed = true
	all := slices.Collect(maps.Keys(s.all))
	s.mu.Unlock()
	for _, h := range all {
		h.giveUp()
	}
}

func (s *Handshakes) add(nc net.Conn, h *Handshake) bool {
	h.of, h.peer = s, accepting.Peer(addrOf(nc))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.all[h] = true
	return true
}

// addrOf returns the address of a connection's peer, or the zero Addr.
func addrOf(nc net.Conn) netip.Addr {
	if c, ok := nc.(interface{ RemoteAddrPort() netip.AddrPort }); ok {
		return c.RemoteAddrPort().Addr()
	}
	return sockaddr.AddrPort(nc.RemoteAddr()).Addr()
}

// ready is called on the connection's loop when the client has sent something, or never will.
func (h *Handshake) ready(err error) {
	if err == nil {
		h.of.enter(h)
		return
	}
	h.of.leave(h)
	h.Lost(err)
}

// run calls Do.
func (h *Handshake) run() {
	defer h.of.leave(h)
	h.Do(h)
}

// Finish notes that the handshake is done. It reports false if it was given up: Cut was called, or is
// about to be. After true it isn't.
func (h *Handshake) Finish() bool { return !h.over.Swap(true) }

// giveUp makes the handshake fail, unless it is done: the layer above may have the connection then.
func (h *Handshake) giveUp() {
	if !h.over.Swap(true) {
		h.Cut()
	}
}

// Wait gives the permit of the handshake back before it waits for its client. Resume waits for the next.
// Do calls them; after its end they do nothing, for code that still uses the connection.
func (h *Handshake) Wait() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	h.rests = true
	h.of.restLocked(h)
}

// Resume: see Wait.
func (h *Handshake) Resume() {
	if permit := h.of.resume(h); permit != nil {
		<-permit
	}
}

// Await is call(p) between Wait and Resume; just call(p) if h is nil, the handshake done.
func (h *Handshake) Await(call func([]byte) (int, error), p []byte) (int, error) {
	if h != nil {
		h.Wait()
		defer h.Resume()
	}
	return call(p)
}

// Conn returns nc for Do: it waits for its client between Wait and Resume, until Done is called.
func (h *Handshake) Conn(nc net.Conn) *Conn {
	c := &Conn{Conn: nc}
	c.shaking.Store(h)
	return c
}

// Conn is a connection as its handshake sees it. It hides everything but a net.Conn.
type Conn struct {
	net.Conn
	shaking atomic.Pointer[Handshake] // nil: the handshake is done
}

// Done says that the handshake is done.
func (c *Conn) Done() { c.shaking.Store(nil) }

// NetConn returns the connection below.
func (c *Conn) NetConn() net.Conn { return c.Conn }

// Read reads, and lets others compute while it waits.
func (c *Conn) Read(p []byte) (int, error) { return c.shaking.Load().Await(c.Conn.Read, p) }

// Write writes, and lets others compute while it waits.
func (c *Conn) Write(p []byte) (int, error) { return c.shaking.Load().Await(c.Conn.Write, p) }
