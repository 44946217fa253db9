package httpadapter

import (
	"crypto/tls"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// connQueue is the listener that net/http accepts from. There is one per listener of the call, so that
// connections that the kernel gave to different sockets are accepted, woken and leased to net/http
// without getting in each other's way.
//
// It also keeps the connections that net/http does not have at the moment, and its sweeper takes back
// those that wait for a request.
type connQueue struct {
	// immutable
	call        *serveCall
	server      *Server // the call's, which each request needs
	from        net.Listener
	wake        chan struct{}         // has a token if ready or closed may have changed
	workers     *workers.Pool[*conn]  // one of the call's, shared by several queues
	counts      serving.Cell[counter] // of the server's counters; a pool's queues have the same
	parksAtOnce bool
	told        chan struct{} // has a token when a connection that isn't ours was introduced, or never will be

	// atomic
	handover  atomic.Pointer[handoverOut] // the HandOver that is under way; nil: none, or nothing of this queue can move
	admitting atomic.Bool                 // a connection is new: it is in neither set

	// owned by the goroutine that net/http accepts on
	introduces bool // net/http calls the hooks for a connection that isn't ours

	sweeper sweeper

	mu struct {
		sync.Mutex
		kept   connSet    // that net/http does not have
		leased connSet    // that it has, except those that it never gives back
		ready  []net.Conn // for Accept, oldest first: *conn that are queued, guards, and foreign ones
		closed bool
	}
}

// Accept returns the next connection that has something to read, or isn't ours.
func (q *connQueue) Accept() (net.Conn, error) {
	q.introduced()
	for {
		nc, closed := q.next()
		switch {
		case closed:
			return nil, net.ErrClosed
		case nc == nil:
			<-q.wake
			continue
		}
		switch nc := nc.(type) {
		case *conn:
			if lease := nc.leaseOut(); lease != nil {
				return lease, nil
			}
		case guardConn:
			return nc, nil
		default:
			q.introduces = true
			return nc, nil
		}
	}
}

// next takes a connection out of the queue. It is called by one goroutine.
func (q *connQueue) next() (nc net.Conn, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.mu.ready) == 0 || q.call.ended.Load() {
		return nil, q.mu.closed // connections accepted before the last release are still served
	}
	nc = q.mu.ready[0]
	q.mu.ready[0] = nil
	q.mu.ready = q.mu.ready[1:]
	if len(q.mu.ready) == 0 {
		q.mu.ready = nil // a burst's array is not kept
	}
	return nc, false
}

// Close is called by net/http when it shuts down, with the server's lock held, and when
// it could not start; and when the Server is closed.
func (q *connQueue) Close() error {
	if !q.close() {
		return nil // it was not needed any more
	}
	call := q.call
	call.ended.Store(true)
	go call.drainHTTP2() // its hooks may want locks that net/http holds
	if g := call.idleGuard.Load(); g != nil {
		g.change(func() {}) // it may be silent
	}
	call.closeOnce.Do(func() { call.closeErr = call.listener.Close() })
	return call.closeErr
}

// Addr returns the address of the listener.
func (q *connQueue) Addr() net.Addr { return q.call.listener.Addr() }

// close ends Accept, and reports whether it hadn't been ended already.
func (q *connQueue) close() bool {
	q.mu.Lock()
	first := !q.mu.closed
	q.mu.closed = true
	q.mu.Unlock()
	q.signal()
	return first
}

func (q *connQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// push queues a connection for Accept. It reports false if net/http accepts no
// more.
func (q *connQueue) push(nc net.Conn) bool {
	q.mu.Lock()
	if q.mu.closed {
		q.mu.Unlock()
		return false
	}
	q.mu.ready = append(q.mu.ready, nc)
	q.mu.Unlock()
	q.signal()
	return true
}

// keep takes a new connection in. It reports false if net/http would never take it.
// The caller holds c.mu.
func (q *connQueue) keep(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.closed {
		return false
	}
	q.mu.kept.add(c)
	return true
}

// lend notes that net/http gets c, which was kept, and returns the time in the
// sweeper's ticks. The caller holds c.mu.
func (q *connQueue) lend(c *conn) (tick uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.kept.remove(c)
	q.mu.leased.add(c)
	if q.call.parks() {
		q.sweeper.joinedLocked(q.mu.leased.len)
	}
	return q.sweeper.ticks.Load()
}

// takeBack keeps c again, which was lent. It reports false if net/http would never
// take it another time. The caller holds c.mu.
func (q *connQueue) takeBack(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.leased.remove(c) {
		q.sweeper.leftLocked(q.mu.leased.len)
	}
	if q.mu.closed {
		return false
	}
	q.mu.kept.add(c) // with mu held all the time: a connection in neither set is none for HandOver
	return true
}

// forget gives up c, which was kept or lent or neither. The caller holds c.mu.
func (q *connQueue) forget(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.kept.remove(c):
	case q.mu.leased.remove(c):
		q.sweeper.leftLocked(q.mu.leased.len)
	}
}

// each calls do for the connections that are in set, one of the queue's, from the
// beginning of the call to its end. It may call it for others, and twice for one. The
// caller does not hold mu, nor does do run with it: no matter how many connections there
// are, others don't wait for it.
func (q *connQueue) each(set *connSet, do func(c *conn)) {
	var part [connsPerChunk]*conn
	for n, end := 0, math.MaxInt; ; {
		q.mu.Lock()
		n, end = set.slice(&part, end)
		q.mu.Unlock()
		for _, c := range part[:n] {
			do(c)
		}
		if end == 0 {
			return
		}
	}
}

// closeConns closes those of the kept connections that hangUp is for, and those that
// net/http has and would close if it knew of their past.
func (q *connQueue) closeConns(hangUp func(c *conn)) {
	q.each(&q.mu.kept, hangUp)
	q.each(&q.mu.leased, (*conn).hangUpResuming)
}

// closeKept closes the connections that net/http would close if it knew of them, now that it takes
// no more, because q is closed: those that are kept, queued, or were parked until just now.
func (q *connQueue) closeKept() {
	q.closeConns((*conn).hangUp)
	q.mu.Lock()
	ready := q.mu.ready
	q.mu.ready = nil
	q.mu.Unlock()
	for _, nc := range ready {
		switch nc.(type) {
		case *conn, guardConn:
		default:
			nc.Close()
			q.told <- struct{}{}
		}
	}
}

// acceptLoop accepts connections until the listener fails permanently. Temporary failures
// are logged and waited out as net/http does.
func (q *connQueue) acceptLoop() error {
	return serving.Accept(q.from, q.call.ended.Load, func(err error, in time.Duration) {
		q.server.logf("http: Accept error: %v; retrying in %v", err, in)
	}, q.accepted)
}

// accepted takes a new connection in.
func (q *connQueue) accepted(nc net.Conn) {
	pc, ok := nc.(*percore.Conn)
	if ok && q.call.keeps {
		q.admitting.Store(true)
		q.newConn(pc).start()
		q.admitting.Store(false)
		return
	}
	if !ok {
		q.counts.Add(countForeign, 1)
		q.call.warnForeign(nc)
	}
	if q.call.tls != nil {
		nc = tls.Server(nc, q.call.tls)
	}
	q.introduce(nc)
}

// insteadOf says what to use instead of the wrapper that has made nc.
func insteadOf(nc net.Conn) string {
	if _, ok := nc.(*tls.Conn); ok {
		return "For TLS call ServeTLS instead of tls.NewListener"
	}
	return "percore.ListenConfig limits connections by MaxConns, and reads PROXY headers by ProxyProtocol; " +
		"TLS is served by ServeTLS"
}

// introduce gives net/http a connection that isn't ours, and returns when the hooks were called for it:
// for one connection of the call at a time, and before Serve returns.
func (q *connQueue) introduce(nc net.Conn) {
	q.call.introducing.Lock()
	defer q.call.introducing.Unlock()
	if !q.push(nc) {
		nc.Close()
		return
	}
	<-q.told
}

// introduced lets introduce go on when net/http has called the hooks for the connection, which it does
// before it accepts the next, or returns.
func (q *connQueue) introduced() {
	if q.introduces {
		q.introduces = false
		q.told <- struct{}{}
	}
}
