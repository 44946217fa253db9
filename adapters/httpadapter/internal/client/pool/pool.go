// Package pool keeps a client's connections, and the calls that wait for one. It knows no protocol, only
// whether a connection serves one call at a time or has streams for many.
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

// Pool holds the hosts that have connections, or calls waiting for one. The exported fields are set
// before the pool is used.
type Pool struct {
	Base     *http.Transport // the limits
	Counters *counters.Set[Counter]

	// Dial connects to a host. It may block until ctx ends.
	Dial func(ctx context.Context, h *Host) (link.Conn, error)

	// Share sets c.Streams, with one stream reserved, if calls share c, a connection just dialed. If
	// that fails, Share returns an error, and c is closed.
	Share func(c *Conn) error

	DialsMax int           // see DialsMax
	Patience time.Duration // see PatienceMost

	hosts [kinds]sync.Map // string, Route.Key, to *Host

	closing atomic.Bool // no call has wanted a connection since CloseIdleConnections
}

// kinds is the number of values of Route.Kind.
const kinds = 8

// Route tells how a call reaches its server.
type Route struct {
	Kind   uint8    // Kind and Key identify the host
	Key    string   // Addr, unless there is a proxy
	Addr   string   // what to dial
	Server string   // Addr, or the address that the proxy connects to
	Proxy  *url.URL // nil without a proxy
	Shares bool     // calls share connections if the server supports it
}

// Host has the connections to one server, directly or through one proxy, or those through a proxy to
// any server in cleartext. Its lock is the only lock that a call takes, and only briefly.
type Host struct {
	pool *Pool
	Route

	Count counters.Cell[Counter]    // counts its connections
	TLS   atomic.Pointer[TLSConfig] // for Dial to keep

	waiting atomic.Int32 // how many calls wait

	latest atomic.Pointer[Conn] // the connection of shared that had room last; may be nil

	mu       sync.Mutex
	shared   []*Conn              // for any number of calls; only connections that take more calls
	idle     []*Conn              // the latest to become idle is last; while there are any, no call waits
	waiters  list.List            // of *Waiter, in order of arrival
	undialed *list.Element        // the first waiter without a dial; later ones have no dial
	dials    map[*Waiter]struct{} // dials under way; may be nil
	open     int                  // connections being dialed or open, without those leaving
	leaving  int                  // shared connections that take no more calls and have not ended
	gone     bool                 // no longer in the pool

	took    time.Duration // by the last dial, if its connection is shared; 0 if not, or if it failed
	begunAt time.Time     // when the last dial began
	recalls bool          // recallLocked has scheduled a call of unlock
}

// TLSConfig is a host's configuration (Own), and the configuration it was made from.
type TLSConfig struct{ Own, From *tls.Config }

// lock returns the host of a route, locked. New hosts use the cells of counters in turn.
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

// State returns how many connections count for MaxConnsPerHost, and what the last dial took, if its
// connection is shared. It is for tests of the client.
func (h *Host) State() (open int, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open, h.took
}

// DialsMax limits the dials to a host, with their handshakes, under way at a time. Further calls wait
// until a dial ends or a connection is idle. So a host that doesn't answer can't take more. No limit
// spans hosts, so it takes nothing from others. A busy client needs a tenth of it when its server
// restarts.
const DialsMax = 10_000

// orphanMax is how long a dial goes on after the last call has stopped waiting for it. Another call may
// need the connection. But without a limit (or a TLSHandshakeTimeout), a stopped server would collect
// dials endlessly, and use up MaxConnsPerHost. The value is http.DefaultTransport's TLSHandshakeTimeout.
const orphanMax = 10 * time.Second

// unlock unlocks the host. It first begins the dials that may begin, and removes the host from the pool
// if the host is no longer needed.
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

// Take returns the connection that became idle last and the time when it did, or a shared connection
// with a stream reserved. If there is no such connection, Take returns a Waiter, whose dial has the
// values of ctx.
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
		if shares && h.waiting.Load() == 0 { // waiting calls come first
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
		if !p.isTooOld(since) && conn.Link.Wake() {
			return conn, since, nil
		}
		conn.Close()
	}
}

// queueLocked adds a call to the queue.
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

// mayDialLocked returns how many more connections may be dialed for waiting calls without a dial.
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

// paceLocked is mayDialLocked for a server with shared connections: one connection serves many calls.
// But a dial that hangs must not hold up the calls. So when a dial takes too long, one more begins, and
// then as many more as there are.
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

// A dial should take at most twice as long as the last dial, within these bounds. Shorter times are
// scheduling noise. The upper bound, which people don't notice, is RFC 8305's Connection Attempt Delay.
const (
	patienceLeast = 10 * time.Millisecond
	PatienceMost  = 250 * time.Millisecond
)

// recallLocked schedules a call of unlock after a delay.
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

// dialLocked begins a dial for the first waiting call without a dial.
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

// isTooOld reports whether a connection was idle too long by the wall clock: the machine may have slept.
func (p *Pool) isTooOld(since time.Time) bool {
	d := p.Base.IdleConnTimeout
	return d > 0 && since.Before(time.Now().Round(0).Add(-d))
}

// popLocked removes the idle connection at i from the list and returns it.
func (h *Host) popLocked(i int) *Conn {
	c := h.idle[i]
	h.idle = slices.Delete(h.idle, i, i+1)
	c.state.Store(busy)
	h.Count.Add(Idle, -1)
	return c
}

// firstLocked returns the call that has waited longest, or nil.
func (h *Host) firstLocked() *Waiter {
	if first := h.waiters.Front(); first != nil {
		return first.Value.(*Waiter)
	}
	return nil
}

// closeOldest closes the connection that has been idle longest.
func (p *Pool) closeOldest() {
	var oldest *Conn
	var since int64
	for h := range p.Hosts {
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

// Hosts calls yield for each host.
func (p *Pool) Hosts(yield func(*Host) bool) {
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
	for h := range p.Hosts {
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
