// Package pool has a client's connections, and the calls that wait for one. It knows no protocol: it
// makes connections with the functions it is given, and knows only whether a connection is for one
// call at a time, or has streams for many.
package pool

import (
	"container/list"
	"context"
	"crypto/tls"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/internal/shared/counters"
)

// Pool has the hosts that there are connections to, or calls that wait for one. Its exported fields are
// set before it is used.
type Pool struct {
	Base     *http.Transport // the limits
	Counters *counters.Set[Counter]
	Stray    link.Stray // what has come on idle connections

	// Dial connects to a host. It may block until ctx ends.
	Dial func(ctx context.Context, h *Host) (link.Conn, error)

	// Share sets c.Streams, with one that is reserved, if calls share c, which was dialed. If that fails
	// it returns an error, and c is closed.
	Share func(c *Conn) error

	DialsMax int           // see DialsMax
	Patience time.Duration // see PatienceMost

	hosts [kinds]sync.Map // string, Route.Key, to *Host

	closing atomic.Bool // CloseIdleConnections was called, and since then no call has wanted a connection
}

// kinds is how many values Route.Kind may have.
const kinds = 8

// Route is how a call gets to its server.
type Route struct {
	Kind   uint8    // with Key, what tells hosts apart
	Key    string   // Addr, unless there is a proxy
	Addr   string   // what to dial
	Server string   // the address that Addr is, or that the proxy connects to
	Proxy  *url.URL // nil: none
	Shares bool     // calls share the connections, if the server can do that
}

// Host has the connections to one server, or through one proxy to it, or to any server in cleartext.
// Its lock is the only one that a call takes, for a moment.
type Host struct {
	pool *Pool
	Route

	Count counters.Cell[Counter]    // the counters of its connections
	TLS   atomic.Pointer[TLSConfig] // for Dial to keep

	waiting atomic.Int32 // how many calls wait

	latest atomic.Pointer[Conn] // of shared, the one that had room last; may be nil

	mu       sync.Mutex
	shared   []*Conn              // for any number of calls; those that take more of them
	idle     []*Conn              // the one that became idle last is at the end; if there is one no call waits
	waiters  list.List            // of *Waiter, in the order in which they came
	undialed *list.Element        // the first of them without a dial; none behind it has one
	dials    map[*Waiter]struct{} // that are under way; a nil map is an empty one
	open     int                  // connections that are being dialed, or open, unless they are leaving
	leaving  int                  // connections of shared that take no more calls, and have not ended
	gone     bool                 // no longer in the pool

	took    time.Duration // by the last dial, whose connection is shared; 0: it hasn't, or failed
	begunAt time.Time     // when the last dial began
	recalls bool          // recallLocked was called, and unlock will be
}

// TLSConfig is a host's configuration, and the configuration from which it was made.
type TLSConfig struct{ Own, From *tls.Config }

// lock returns the host of a route, locked. The hosts take turns with the cells of counters.
func (p *Pool) lock(r *Route) *Host {
	for {
		v, ok := p.hosts[r.Kind].Load(r.Key)
		if !ok {
			v, _ = p.hosts[r.Kind].LoadOrStore(r.Key, &Host{pool: p, Route: *r, Count: *p.Counters.Next()})
		}
		h := v.(*Host)
		h.mu.Lock()
		if !h.gone {
			return h
		}
		h.mu.Unlock()
	}
}

// DialsMax is how many dials to a host, with the handshakes, are under way at a time. More calls wait
// for one of them to end, or for an idle connection. It bounds what a host that doesn't answer takes,
// and there is no bound over all hosts, so that it takes nothing from the others. It is ten times what
// a busy client needs when its server restarts.
const DialsMax = 10_000

// orphanMax is how long a dial goes on for which no call waits any more. Another may need the
// connection, but a server that has stopped would otherwise collect dials without an end, unless there
// is a TLSHandshakeTimeout, and take the places of MaxConnsPerHost. It is http.DefaultTransport's
// TLSHandshakeTimeout.
const orphanMax = 10 * time.Second

// unlock unlocks the host. It begins the dials that may begin, and forgets the host if it is of no use
// any more.
func (h *Host) unlock() {
	if h.undialed != nil {
		for n := h.mayDialLocked(); n > 0 && h.undialed != nil; n-- {
			h.dialLocked()
		}
	}
	if h.open == 0 && h.leaving == 0 && h.waiting.Load() == 0 && !h.gone {
		h.gone = true
		h.pool.hosts[h.Kind].CompareAndDelete(h.Key, h)
	}
	h.mu.Unlock()
}

// Take returns the connection that became idle last, and since when it was idle, or one with a stream
// that is reserved. If there is none, it returns a Waiter. The dials for that have the values of ctx.
func (p *Pool) Take(ctx context.Context, r *Route) (*Conn, time.Time, *Waiter) {
	keeps := !p.Base.DisableKeepAlives
	if keeps && p.closing.Load() {
		p.closing.Store(false)
	}
	shares := keeps && r.Shares
	if shares {
		if conn := p.latestOf(r); conn != nil {
			return conn, time.Time{}, nil
		}
	}
	for {
		h := p.lock(r)
		if shares && h.waiting.Load() == 0 { // else they come first
			if conn := h.reserveLocked(); conn != nil {
				h.mu.Unlock()
				return conn, time.Time{}, nil
			}
		}
		if !keeps || len(h.idle) == 0 {
			w := h.queueLocked(ctx)
			h.unlock()
			return nil, time.Time{}, w
		}
		conn := h.popLocked(len(h.idle) - 1)
		since := time.Unix(0, conn.since)
		h.mu.Unlock() // over TLS Wake waits for a look, which takes the lock
		if !p.isTooOld(since) && conn.Link.Wake(p.Stray) {
			return conn, since, nil
		}
		conn.Close()
	}
}

// queueLocked makes a call wait.
func (h *Host) queueLocked(ctx context.Context) *Waiter {
	w := &Waiter{host: h, result: make(chan dialed, 1)}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if w.place = h.waiters.PushBack(w); h.undialed == nil {
		h.undialed = w.place
	}
	h.waiting.Add(1)
	h.Count.Add(Waiting, 1)
	return w
}

// mayDialLocked returns how many more connections may be dialed, if calls wait without.
func (h *Host) mayDialLocked() int {
	base := h.pool.Base
	most := h.pool.DialsMax - len(h.dials)
	if base.MaxConnsPerHost > 0 {
		most = min(most, base.MaxConnsPerHost-h.open)
	}
	if base.HTTP2 != nil && base.HTTP2.StrictMaxConcurrentRequests && len(h.shared) > 0 {
		return 0
	}
	if most > 0 && h.took > 0 {
		most = min(most, h.paceLocked())
	}
	return most
}

// paceLocked is mayDialLocked for a server whose connections are shared: one will do for many calls.
// But a dial may hang, which must not hold up the calls. So when it has taken longer than it should
// there is one more, and then as many more as there are.
func (h *Host) paceLocked() int {
	if len(h.dials) == 0 {
		return 1
	}
	if wait := time.Until(h.begunAt.Add(max(patienceLeast, min(2*h.took, h.pool.Patience)))); wait > 0 {
		h.recallLocked(wait)
		return 0
	}
	return len(h.dials)
}

// A dial should take no longer than twice the last one, within these bounds: below is noise of the
// scheduler, and above lies RFC 8305's Connection Attempt Delay, by which people don't notice a wait.
const (
	patienceLeast = 10 * time.Millisecond
	PatienceMost  = 250 * time.Millisecond
)

// recallLocked makes unlock be called after a while.
func (h *Host) recallLocked(after time.Duration) {
	if h.recalls {
		return
	}
	h.recalls = true
	time.AfterFunc(after, func() {
		h.mu.Lock()
		h.recalls = false
		h.unlock()
	})
}

// dialLocked begins to dial for the first call without a dial.
func (h *Host) dialLocked() {
	w := h.undialed.Value.(*Waiter)
	h.undialed = h.undialed.Next()
	if h.dials == nil {
		h.dials = make(map[*Waiter]struct{})
	}
	h.dials[w] = struct{}{}
	h.open++
	h.begunAt = time.Now()
	h.Count.Add(Dialing, 1)
	go w.dial()
}

// isTooOld reports whether a connection has been idle for too long by the wall clock: the computer may
// have slept.
func (p *Pool) isTooOld(since time.Time) bool {
	d := p.Base.IdleConnTimeout
	return d > 0 && since.Before(time.Now().Round(0).Add(-d))
}

// popLocked takes the idle connection at i out of the list.
func (h *Host) popLocked(i int) *Conn {
	c := h.idle[i]
	h.idle = slices.Delete(h.idle, i, i+1)
	c.state.Store(busy)
	h.Count.Add(Idle, -1)
	return c
}

// firstLocked returns the call that has waited for longest, or nil.
func (h *Host) firstLocked() *Waiter {
	if first := h.waiters.Front(); first != nil {
		return first.Value.(*Waiter)
	}
	return nil
}

// closeOldest closes the connection that has been idle for longest.
func (p *Pool) closeOldest() {
	var oldest *Conn
	var since int64
	for h := range p.all {
		h.mu.Lock()
		if len(h.idle) > 0 && (oldest == nil || h.idle[0].since < since) {
			oldest, since = h.idle[0], h.idle[0].since
		}
		h.mu.Unlock()
	}
	if oldest != nil {
		oldest.remove()
	}
}

// all calls yield with each host.
func (p *Pool) all(yield func(*Host) bool) {
	for k := range p.hosts {
		more := true
		p.hosts[k].Range(func(_, h any) bool { more = yield(h.(*Host)); return more })
		if !more {
			return
		}
	}
}

// CloseIdle closes all idle connections, and ends dials that no call waits for.
func (p *Pool) CloseIdle() {
	p.closing.Store(true)
	for h := range p.all {
		h.mu.Lock()
		conns := slices.Clone(h.idle)
		for len(h.idle) > 0 {
			h.popLocked(len(h.idle) - 1)
		}
		h.endOrphansLocked()
		h.mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
		h.closeIdleShared()
	}
}

// endOrphansLocked ends dials that no call waits for.
func (h *Host) endOrphansLocked() {
	for w := range h.dials {
		if w.place == nil {
			w.cancel()
		}
	}
}
