package serving

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/monotime"
)

// Handshakes are the handshakes of a server. They are bounded, and each peer has a share: see places.
// They take turns to compute: see permits. All methods are safe for concurrent use, and none blocks.
type Handshakes struct {
	places  places
	permits permits

	mu     sync.Mutex
	all    map[*Handshake]struct{} // that have not left
	closed bool
}

// NewDefaultHandshakes makes 1,024 places, and 15,360 more for handshakes that take long: some 30
// KB each. A quarter of the first may be of one peer, and all of the others while no other peer
// needs them.
func NewDefaultHandshakes() *Handshakes { return NewHandshakes(1<<10, 15<<10) }

// NewHandshakes makes the places for most handshakes, and for aside more whose clients take long. If
// aside is 0 those are closed while others wait.
func NewHandshakes(most, aside int) *Handshakes {
	s := &Handshakes{all: make(map[*Handshake]struct{})}
	s.places.init(most, aside, func(h *Handshake) { go h.runInPlace() })
	s.permits.init()
	return s
}

// Handshake is an accepted connection before the layer above knows it. Make it with its exported fields,
// and give it to Begin or Enter.
//
//	state    where                                  leaves by
//	silent   on its loop: no goroutine              bytes come: waiting; the deadline passes, or it is
//	                                                closed: ended
//	waiting  in places                              there is a place for it: running
//	running  in places, on a goroutine              Do returns: ended; its client takes long while others
//	                                                wait: aside, or it is given up, of which Do learns
//	aside    out of places, on the same goroutine   Do returns: ended; the same, in a crowd
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

	// atomic, and written by its goroutine
	waits    atomic.Int64 // the time that it has waited for its client, without the wait under way
	waitedAt atomic.Int64 // when that began, or 0; of monotime.Local

	lentAt atomic.Int64 // since when it computes beyond its permit, or 0; written with permits.mu held
	ended  bool         // it gets no permit any more; guarded by permits.mu
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
		go h.run()
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
	s.places.enter(h)
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
	s.all[h] = struct{}{}
	return true
}

// addrOf returns the address of a connection's peer, or the zero Addr.
func addrOf(nc net.Conn) netip.Addr {
	switch c := nc.(type) {
	case interface{ RemoteAddrPort() netip.AddrPort }:
		return c.RemoteAddrPort().Addr()
	default:
		tcp, _ := nc.RemoteAddr().(*net.TCPAddr)
		return tcp.AddrPort().Addr()
	}
}

func (h *Handshake) leave() {
	h.of.mu.Lock()
	defer h.of.mu.Unlock()
	delete(h.of.all, h)
}

// ready is called on the connection's loop when the client has sent something, or never will.
func (h *Handshake) ready(err error) {
	if err == nil {
		h.of.places.enter(h)
		return
	}
	h.leave()
	h.Lost(err)
}

// runInPlace is run of a handshake that has a place.
func (h *Handshake) runInPlace() {
	defer h.of.places.leave(h)
	h.run()
}

// run calls Do.
func (h *Handshake) run() {
	defer h.leave()
	h.of.permits.compute(h)
	defer h.of.permits.end(h)
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
	h.waitedAt.Store(monotime.Local())
	h.of.permits.rest(h)
}

// Resume: see Wait.
func (h *Handshake) Resume() {
	h.waits.Add(monotime.Local() - h.waitedAt.Swap(0)) // in this order: see waited
	h.of.permits.compute(h)
}

// Await is call(p) between Wait and Resume; just call(p) if h is nil, the handshake done.
func (h *Handshake) Await(call func([]byte) (int, error), p []byte) (int, error) {
	if h != nil {
		h.Wait()
		defer h.Resume()
	}
	return call(p)
}

// waited returns for how long the handshake has waited for its client.
func (h *Handshake) waited(now int64) int64 {
	before := h.waits.Load() // first, or a wait that ends here would count twice
	if at := h.waitedAt.Load(); at != 0 {
		return before + now - at
	}
	return 0
}

// stalls reports whether the handshake, for so long, has waited for its client, or computed beyond its
// permit: a function of the program's, such as GetCertificate, may wait for another server.
func (h *Handshake) stalls(now, long int64) bool {
	lent := h.lentAt.Load()
	return h.waited(now) >= long || lent != 0 && now-lent >= long
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
