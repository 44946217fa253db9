package httpadapter

import (
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// connQueue has the connections of one listener of a call, so that those that the kernel gave to
// different sockets are accepted, woken and served without getting in each other's way.
type connQueue struct {
	// immutable
	call    *serveCall
	server  *Server // the call's, which each request needs
	from    net.Listener
	tls     tlsSide               // nil: plain HTTP
	workers *workers.Pool[*conn]  // one of the call's, shared by several queues
	counts  serving.Cell[counter] // of the server's counters; a pool's queues have the same

	// atomic
	handover  atomic.Pointer[handoverOut] // the HandOver that is under way; nil: none, or nothing of this queue can move
	admitting atomic.Bool                 // a connection is new: it is not in kept yet

	mu struct {
		sync.Mutex
		kept connSet // all connections, until they are hijacked or closed
	}
}

// keep takes a new connection in. It reports false if the server is shut down. The caller holds c.mu.
func (q *connQueue) keep(c *conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.call.ended.Load() { // or closeKept, which comes after that, finds c
		return false
	}
	q.mu.kept.add(c)
	return true
}

// forget gives up c, which may have been kept. The caller holds c.mu.
func (q *connQueue) forget(c *conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.kept.remove(c)
}

// each calls do for the connections that are kept from the beginning of the call to its end. It may
// call it for others, and twice for one. The caller does not hold mu, nor does do run with it: no
// matter how many connections there are, others don't wait for it.
func (q *connQueue) each(do func(c *conn)) {
	var part [connsPerChunk]*conn
	for n, end := 0, math.MaxInt; ; {
		q.mu.Lock()
		n, end = q.mu.kept.slice(&part, end)
		q.mu.Unlock()
		for _, c := range part[:n] {
			do(c)
		}
		if end == 0 {
			return
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
	if q.tls != nil {
		nc = q.tls(nc)
	}
	q.call.nethttp.introduce(nc)
}
