package h1

import (
	"crypto/tls"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/workers"
)

// Queue has the connections of one of a server's accept loops. Connections that the kernel gave to
// different sockets are accepted, woken and served without contention.
type Queue struct {
	// immutable
	TLS     func(net.Conn) *tls.Conn // makes the server's side of TLS; nil: in clear
	server  *Server
	workers *workers.Pool[*Conn]   // one of the server's, shared by several queues
	counts  counters.Cell[Counter] // a pool's queues have the same

	// atomic
	mover     atomic.Pointer[Mover] // nil: connections stay
	admitting atomic.Bool           // a connection is new: it is not in kept yet

	mu struct {
		sync.Mutex
		kept connSet // all connections, until they are hijacked or closed
	}
}

// left returns how many connections the queue has.
func (q *Queue) left() (n int) {
	if q.admitting.Load() { // first: then the connection is kept
		n++
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return n + q.mu.kept.len
}

// keep takes a new connection in. It reports false if the server is shut down. The caller holds c.mu.
func (q *Queue) keep(c *Conn) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.server.Host.Ended() { // or CloseKept, which comes after that, finds c
		return false
	}
	q.mu.kept.add(c)
	return true
}

// forget gives up c, which may have been kept. The caller holds c.mu.
func (q *Queue) forget(c *Conn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.kept.remove(c)
}

// each calls do, without mu, for the connections that are kept for the whole call. It may call do for
// others, and twice for one.
func (q *Queue) each(do func(c *Conn)) {
	var part [connsPerChunk]*Conn
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

// gauge counts a connection that comes into a state, or leaves it.
func (q *Queue) gauge(of connState, by int64) {
	switch of.state() {
	case stateFresh:
		q.counts.Add(CountWaiting, by)
	case stateParked, stateTakenOut, stateClosing:
		q.counts.Add(CountParked, by)
	case stateServing, stateNotified:
		q.counts.Add(CountServing, by)
	case stateHijacked, stateClosed:
		q.counts.Add(CountConns, -by)
	}
}
