package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// pool has the hosts that there are connections to, or calls that wait for one.
type pool struct {
	t *Transport

	hosts [kinds]sync.Map // string, the address, to *host

	closing atomic.Bool // CloseIdleConnections was called, and since then no call has wanted a connection
}

// host has the connections to one server, or through one proxy to it, or to any server in clear. Its
// lock is the only one that a call takes, for a moment.
type host struct {
	pool   *pool
	kind   kind
	key    string // in the pool
	addr   string // what to dial
	server string // the address that addr is, or that the proxy connects to
	proxy  *url.URL

	count serving.Cell[counter] // the counters of its connections

	waiting atomic.Int32 // how many calls wait

	latest atomic.Pointer[conn] // of shared, the one that had room last; may be nil

	mu      sync.Mutex
	shared  []*conn              // of HTTP/2, for any number of calls; those that take more of them
	idle    []*conn              // the one that became idle last is at the end; if there is one no call waits
	dialing waiters              // with dials
	queued  waiters              // behind them, without
	dials   map[*waiter]struct{} // that are under way; a nil map is an empty one
	open    int                  // connections that are being dialed, or open, unless they are leaving
	leaving int                  // connections of HTTP/2 that take no more calls, and have not ended
	tls     *tls.Config
	tlsFrom *tls.Config // the base's, of which tls was made
	gone    bool        // no longer in the pool

	took    time.Duration // by the last dial, which has found HTTP/2; 0: it hasn't, or failed
	begunAt time.Time     // when the last dial began
	recalls bool          // recallLocked was called, and unlock will be
}

// kind tells hosts with the same address apart, whose connections are different.
type kind uint8

const (
	overTLS kind = 1 << iota
	onlyH1       // without ALPN, for requests that HTTP/2 can't serve; without TLS as net/http has it
	clearH2      // HTTP/2 without TLS
	kinds
)

// waiter is a call that waits for a connection. It waits for whatever comes first: a stream on any
// connection of HTTP/2, an idle connection, a dial of its own. It gets no dial while MaxConnsPerHost and
// the like forbid that.
//
//	list     dial       meaning                          leaves by
//	queued   none       it waits                         unlock: dialing; deliverLocked, leave: neither
//	dialing  under way  it waits                         deliverLocked, leave: neither
//	neither  under way  another call may get the result  the dial's end, which comes within orphanMax
//	neither  none       it is over
type waiter struct {
	host   *host
	ctx    context.Context // of the dial
	cancel context.CancelFunc

	// guarded by host.mu
	list       *waiters // it is in; nil: it has something, or wants nothing any more
	prev, next *waiter
	orphan     *time.Timer // ends the dial that goes on when the call doesn't wait any more

	result chan dialed
}

// waiters is a list of calls, in the order in which they came.
type waiters struct{ first, last *waiter }

func (l *waiters) add(w *waiter) {
	w.list, w.prev, w.next = l, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.next = w
	}
	l.last = w
}

func (l *waiters) remove(w *waiter) {
	if w.prev == nil {
		l.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.list, w.prev, w.next = nil, nil, nil
}

// dialed is what a waiter gets: one of the two.
type dialed struct {
	conn *conn
	err  error
}

// lock returns the host of a call, locked.
func (p *pool) lock(c *call) *host {
	for {
		v, ok := p.hosts[c.kind].Load(c.key)
		if !ok {
			v, _ = p.hosts[c.kind].LoadOrStore(c.key, p.newHost(c))
		}
		h := v.(*host)
		h.mu.Lock()
		if !h.gone {
			return h
		}
		h.mu.Unlock()
	}
}

// newHost makes a host. The hosts take turns with the cells of counters.
func (p *pool) newHost(c *call) *host {
	return &host{pool: p, kind: c.kind, key: c.key, addr: c.addr, server: c.server, proxy: c.proxy,
		count: *p.t.counters.Next()}
}

// dialsMax is how many dials to a host, with the handshakes, are under way at a time. More calls wait
// for one of them to end, or for an idle connection. It bounds what a host that doesn't answer takes,
// and there is no bound over all hosts, so that it takes nothing from the others. It is ten times what
// a busy client needs when its server restarts.
const dialsMax = 10_000

// orphanMax is how long a dial goes on for which no call waits any more. Another may need the
// connection, but a server that has stopped would otherwise collect dials without an end, unless there
// is a TLSHandshakeTimeout, and take the places of MaxConnsPerHost. It is http.DefaultTransport's
// TLSHandshakeTimeout.
const orphanMax = 10 * time.Second

// unlock unlocks the host. It begins the dials that may begin, and forgets the host if it is of no use
// any more.
func (h *host) unlock() {
	if h.queued.first != nil {
		for n := h.mayDialLocked(); n > 0 && h.queued.first != nil; n-- {
			h.beginLocked(h.queued.first)
		}
	}
	if h.open == 0 && h.leaving == 0 && h.waiting.Load() == 0 && !h.gone {
		h.gone = true
		h.pool.hosts[h.kind].CompareAndDelete(h.key, h)
	}
	h.mu.Unlock()
}

// take returns the connection that became idle last, and since when it was idle, or one with a stream
// that is reserved. If there is none, it returns a waiter.
func (p *pool) take(c *call) (*conn, time.Time, *waiter) {
	keeps := !p.t.base.DisableKeepAlives
	if keeps && p.closing.Load() {
		p.closing.Store(false)
	}
	shares := keeps && p.t.mayShare(c.kind)
	if shares {
		if conn := p.latestOf(c); conn != nil {
			return conn, time.Time{}, nil
		}
	}
	for {
		h := p.lock(c)
		if shares && h.waiting.Load() == 0 { // else they come first
			if conn := h.reserveLocked(); conn != nil {
				h.mu.Unlock()
				return conn, time.Time{}, nil
			}
		}
		if !keeps || len(h.idle) == 0 {
			w := h.queueLocked(c.ctx)
			h.unlock()
			return nil, time.Time{}, w
		}
		conn := h.popLocked(len(h.idle) - 1)
		since := conn.since
		h.mu.Unlock() // over TLS wake waits for a look, which takes the lock
		if !p.isTooOld(since) && conn.wake() {
			return conn, since, nil
		}
		conn.close()
	}
}

// queueLocked makes a call wait.
func (h *host) queueLocked(ctx context.Context) *waiter {
	w := &waiter{host: h, result: make(chan dialed, 1)}
	w.ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	h.queued.add(w)
	h.waiting.Add(1)
	h.count.Add(countWaiting, 1)
	return w
}

// mayDialLocked returns how many more connections may be dialed, if calls are queued.
func (h *host) mayDialLocked() int {
	base := h.pool.t.base
	most := h.pool.t.dialsMax - len(h.dials)
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

// paceLocked is mayDialLocked for a server that speaks HTTP/2: one connection will do for many calls.
// But a dial may hang, which must not hold up the calls. So when it has taken longer than it should
// there is one more, and then as many more as there are.
func (h *host) paceLocked() int {
	if len(h.dials) == 0 {
		return 1
	}
	if wait := time.Until(h.begunAt.Add(max(patienceLeast, min(2*h.took, h.pool.t.patience)))); wait > 0 {
		h.recallLocked(wait)
		return 0
	}
	return len(h.dials)
}

// A dial should take no longer than twice the last one, within these bounds: below is noise of the
// scheduler, and above lies RFC 8305's Connection Attempt Delay, by which people don't notice a wait.
const (
	patienceLeast = 10 * time.Millisecond
	patienceMost  = 250 * time.Millisecond
)

// recallLocked makes unlock be called after a while.
func (h *host) recallLocked(after time.Duration) {
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

// beginLocked begins to dial for w, which is queued.
func (h *host) beginLocked(w *waiter) {
	h.queued.remove(w)
	h.dialing.add(w)
	if h.dials == nil {
		h.dials = make(map[*waiter]struct{})
	}
	h.dials[w] = struct{}{}
	h.open++
	h.begunAt = time.Now()
	h.count.Add(countDialing, 1)
	go w.dial(h.pool.t.dialer())
}

// isTooOld reports whether a connection has been idle for too long by the wall clock: the computer may
// have slept.
func (p *pool) isTooOld(since time.Time) bool {
	d := p.t.base.IdleConnTimeout
	return d > 0 && since.Round(0).Before(time.Now().Add(-d))
}

// popLocked takes the idle connection at i out of the list.
func (h *host) popLocked(i int) *conn {
	c := h.idle[i]
	h.idle = slices.Delete(h.idle, i, i+1)
	c.state.Store(busy)
	h.count.Add(countIdle, -1)
	return c
}

// firstLocked returns the call that has waited for longest, or nil.
func (h *host) firstLocked() *waiter {
	if w := h.dialing.first; w != nil {
		return w
	}
	return h.queued.first
}

// The errors of dials without a result.
var (
	errNotNeeded = errors.New("no call waits for the connection")
	errDialEnded = errors.New("net/http: a function that dialing has called has ended the goroutine")
)

// dial dials for w.
func (w *waiter) dial(dial dialFunc) {
	h := w.host
	begun := time.Now()
	var c *conn
	err := errDialEnded
	defer func() { w.dialed(c, err, time.Since(begun)) }()
	h.mu.Lock()
	needed := w.list != nil
	h.mu.Unlock()
	if !needed {
		err = errNotNeeded
		return
	}
	c, err = h.dial(w.ctx, dial)
}

// dialed ends a dial. Its connection goes to w, or to another call if w has got another meanwhile.
func (w *waiter) dialed(c *conn, err error, took time.Duration) {
	h := w.host
	w.cancel()
	connected := err == nil
	if connected {
		h.count.Add(countConns, 1)
		if c.speaksHTTP2() {
			err = c.attach()
		}
	}
	h.mu.Lock()
	if !connected {
		h.open--
	} // else conn.end has done it, or will
	if delete(h.dials, w); len(h.dials) == 0 {
		h.dials = nil // a map takes 200 bytes, and most hosts dial rarely
	}
	if w.orphan != nil {
		w.orphan.Stop()
	}
	h.count.Add(countDialing, -1)
	if err == nil || w.list != nil { // else it was ended because of another connection, perhaps
		h.took = 0 // unless shareAndUnlock finds HTTP/2
	}
	if err == nil && c.shared != nil {
		h.shareAndUnlock(c, w, took)
		return
	}
	delivered := w.deliverLocked(dialed{c, err})
	h.unlock()
	if err == nil && !delivered {
		c.putOrClose()
	}
}

// dial connects to the host.
func (h *host) dial(ctx context.Context, dial dialFunc) (*conn, error) {
	nc, err := dial(ctx, "tcp", h.addr)
	if nc == nil && err == nil {
		err = errNoConn
	}
	if err != nil {
		if h.proxy != nil {
			err = &net.OpError{Op: "proxyconnect", Net: "tcp", Err: err}
		}
		return nil, err
	}
	l, err := h.pool.t.linkOf(nc, dial)
	if err != nil {
		return nil, err
	}
	c := &conn{host: h, nc: l}
	if h.kind&overTLS != 0 {
		whole := false
		defer func() {
			if !whole { // or a function of the user's has ended the goroutine
				l.Close()
			}
		}()
		if h.proxy != nil {
			if err := h.tunnel(ctx, l); err != nil {
				return nil, err
			}
		}
		if c, err = h.shake(ctx, l); err != nil {
			return nil, err
		}
		whole = true
	}
	if !c.speaksHTTP2() {
		seam.DropFinalizer(l)
	}
	return c, nil
}

// deliverLocked gives w what it waits for, and reports false if it no longer does. A connection of
// HTTP/2 has a stream reserved for it.
func (w *waiter) deliverLocked(d dialed) bool {
	if w.list == nil {
		return false
	}
	w.removeLocked()
	w.result <- d
	return true
}

// removeLocked ends the wait. The dial goes on: another call may need the connection.
func (w *waiter) removeLocked() {
	h := w.host
	w.list.remove(w)
	h.waiting.Add(-1)
	h.count.Add(countWaiting, -1)
	if _, ok := h.dials[w]; ok {
		w.orphan = time.AfterFunc(orphanMax, w.cancel)
	}
}

// wait returns the connection that w gets.
func (w *waiter) wait(c *call) (*conn, error) {
	select {
	case d := <-w.result:
		if d.err != nil && c.ctx.Err() != nil {
			return nil, c.canceled() // which probably is why dialing failed
		}
		return d.conn, d.err
	case <-c.ctx.Done():
		w.leave()
		return nil, c.canceled()
	}
}

// leave is for a call that wants nothing any more.
func (w *waiter) leave() {
	h := w.host
	h.mu.Lock()
	waits := w.list != nil
	if waits {
		w.removeLocked()
	}
	h.unlock()
	if !waits {
		if d := <-w.result; d.conn != nil {
			d.conn.giveBack()
		}
	}
}

// giveBack is for a connection that a call has got and doesn't use.
func (c *conn) giveBack() {
	if c.shared == nil {
		c.putOrClose()
		return
	}
	c.shared.streams.Unreserve()
	if c.host.pool.t.base.DisableKeepAlives {
		c.retire()
	}
}

// put makes a connection available: to the first call that waits for one, or as an idle one. It
// fails, and the caller must close it, if it can't.
func (c *conn) put() error {
	h := c.host
	base := h.pool.t.base
	if base.DisableKeepAlives || base.MaxIdleConnsPerHost < 0 {
		return errKeepAlivesDisabled
	}
	c.reused = true
	if c.tls != nil && !c.look() {
		c.close()
		return nil // as if it had become idle a moment before
	}
	for !h.give(c) {
		c.since = time.Now()
		c.state.Store(arming)
		if c.sleep(base.IdleConnTimeout) != nil { // without the lock, for which the others wait
			return errConnBroken
		}
		if kept, err := h.keep(c); kept || err != nil {
			return err
		}
		c.state.Store(busy)
		if !c.wake() {
			c.close()
			return nil // likewise
		}
	}
	return nil
}

// give gives a connection to the first call that waits for one, and reports false if none does, or if
// something has come that isn't an answer to it.
func (h *host) give(c *conn) bool {
	if h.waiting.Load() == 0 || !c.isWhole() || c.tls == nil && hasUnread(c.nc) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.firstLocked()
	return w != nil && w.deliverLocked(dialed{conn: c})
}

// keep makes a connection idle whose callback is armed, or returns why it may not be. It reports false
// without an error if a call has begun to wait for a connection.
func (h *host) keep(c *conn) (bool, error) {
	base := h.pool.t.base
	perHost := base.MaxIdleConnsPerHost
	if perHost == 0 {
		perHost = http.DefaultMaxIdleConnsPerHost
	}
	h.mu.Lock()
	waits := h.firstLocked() != nil
	var err error
	switch {
	case waits && c.isWhole():
		h.mu.Unlock()
		return false, nil
	case waits:
		err = errConnBroken // the rest may never come, and a call waits for the place
	case h.pool.closing.Load():
		err = errCloseIdle
	case len(h.idle) >= perHost:
		err = errTooManyIdleHost
	}
	if err != nil {
		h.mu.Unlock()
		return false, err
	}
	came := c.state.Swap(idle)
	h.idle = append(h.idle, c)
	h.count.Add(countIdle, 1)
	h.mu.Unlock()
	if came != arming {
		c.notice(came == over)
	}
	if base.MaxIdleConns > 0 && h.pool.idleConns() > int64(base.MaxIdleConns) {
		h.pool.closeOldest()
	}
	return true, nil
}

// putOrClose is put for a connection that no call has used.
func (c *conn) putOrClose() {
	if c.put() != nil {
		c.close()
	}
}

// closeOldest closes the connection that has been idle for longest.
func (p *pool) closeOldest() {
	var oldest *conn
	var since time.Time
	for h := range p.all {
		h.mu.Lock()
		if len(h.idle) > 0 && (oldest == nil || h.idle[0].since.Before(since)) {
			oldest, since = h.idle[0], h.idle[0].since
		}
		h.mu.Unlock()
	}
	if oldest != nil {
		oldest.remove()
	}
}

// all calls yield with each host.
func (p *pool) all(yield func(*host) bool) {
	for k := range p.hosts {
		more := true
		p.hosts[k].Range(func(_, h any) bool { more = yield(h.(*host)); return more })
		if !more {
			return
		}
	}
}

// remove closes a connection if it is still idle.
func (c *conn) remove() {
	h := c.host
	h.mu.Lock()
	i := slices.Index(h.idle, c)
	if i >= 0 {
		h.popLocked(i)
	}
	h.mu.Unlock()
	if i >= 0 {
		c.close()
	}
}

// closeIdle closes all idle connections, and ends dials that no call waits for.
func (p *pool) closeIdle() {
	p.closing.Store(true)
	for h := range p.all {
		h.mu.Lock()
		conns := slices.Clone(h.idle)
		for len(h.idle) > 0 {
			h.popLocked(len(h.idle) - 1)
		}
		for w := range h.dials {
			if w.list == nil {
				w.cancel()
			}
		}
		h.mu.Unlock()
		for _, c := range conns {
			c.close()
		}
		h.closeIdleShared()
	}
}

// OnReadable is called, on the loop's goroutine, when an idle connection ends, gets bytes without a
// request, or has been idle for IdleConnTimeout, or just before it becomes idle: then put notices.
func (c *conn) OnReadable(err error) {
	ended := err != nil
	now := came
	if ended {
		now = over
	}
	switch {
	case c.state.CompareAndSwap(arming, now):
	case c.tls != nil:
		go c.notice(ended) // crypto/tls may call the user's functions, and write
	default:
		c.notice(ended)
	}
}

// notice closes an idle connection whose callback has come, with an error if ended is set, unless there
// was nothing, or there were only messages to crypto/tls. The connection may be taken at the same time:
// see conn.wake.
func (c *conn) notice(ended bool) {
	if c.tls != nil {
		c.tls.looks.Lock()
		defer c.tls.looks.Unlock()
	}
	if c.state.Load() != idle {
		return // it was taken, and its taker knows
	}
	if !ended && c.lookLocked() {
		h := c.host
		h.mu.Lock()
		if c.state.Load() != idle || serving.Arm(c.nc, c) == nil {
			h.mu.Unlock()
			return
		}
		h.mu.Unlock()
	}
	c.remove()
}

// lookLocked reports whether nothing has come that a program could read: no byte, and no end. It doesn't
// wait. No exchange may use the connection. Over TLS looks is held.
func (c *conn) lookLocked() bool {
	var unasked [64]byte
	var n int
	var err error
	if c.tls != nil {
		n, err = c.tls.tryRead(unasked[:])
		c.tls.spoiled = c.tls.spoiled || n > 0 || err != nil
	} else {
		n, err = c.nc.TryRead(unasked[:])
	}
	if n > 0 {
		go warnUnasked(bytes.Clone(unasked[:n]), err)
	}
	return n == 0 && err == nil
}

// warnUnasked logs that a server has sent something without a request, unless it says that it has
// waited for too long.
func warnUnasked(p []byte, err error) {
	if len(p) >= len("HTTP/1.x 408") && string(p[:7]) == "HTTP/1." && string(p[8:12]) == " 408" {
		return
	}
	log.Printf("Unsolicited response received on idle HTTP channel starting with %q; err=%v", p, err)
}

// sleep arms the callback of a connection that becomes idle.
func (c *conn) sleep(timeout time.Duration) error {
	if timeout > 0 {
		if err := c.nc.SetReadDeadline(c.since.Add(timeout)); err != nil {
			return err
		}
	}
	return c.nc.NotifyReadable(c)
}

// wake disarms the callback, and reports whether the connection can be used: nothing has come
// meanwhile.
func (c *conn) wake() bool {
	cancelled := c.nc.CancelOnReadable()
	if !cancelled && c.tls == nil {
		return false
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	if c.tls != nil {
		return c.wakeTLS(!cancelled)
	}
	return !hasUnread(c.nc)
}
