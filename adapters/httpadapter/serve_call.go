package httpadapter

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/probe"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// serveCall is one call of Serve: a listener, its connections, and the queues through
// which net/http gets them.
//
// It may outlive the call: connections go on after their listener was closed, and
// to serve one that wakes up net/http needs a queue. So the queues end with the last
// of the accept loops and connections, or when net/http closes them, which is how
// it shuts down.
type serveCall struct {
	// immutable
	server   *Server
	listener net.Listener
	tls      *tls.Config // nil: plain HTTP
	base     context.Context
	ctx      context.Context // of connections, before the user's ConnContext
	queues   []*connQueue
	keeps    bool       // connections wait here, without net/http, for their first byte and whenever net/http gives them back
	way      probe.Way  // in which net/http waits: it gives connections back if that is known
	fast     bool       // plain requests are served without net/http
	streams  *h2.Server // of the connections that speak HTTP/2; nil: net/http serves them

	clearHTTP2 bool // they may do so in clear
	fieldsMax  int  // how many fields net/http takes in the header of a request
	workers    []workers.Pool[*conn]
	handshakes *serving.Handshakes
	addrTexts  *addrTexts        // nil without the fast path
	limits     *accepting.Limits // nil: the number of connections is not limited
	guards     []*guard          // that must be in their place before a connection is accepted
	served     chan error        // the results of net/http's Serve, for each queue
	done       chan struct{}     // closed with the last reference

	// atomic
	refs    atomic.Int64 // accept loops and connections
	loops   atomic.Int64 // the accept loops among them
	ended   atomic.Bool  // net/http has closed a queue: it shuts down, or could not start
	foreign atomic.Bool  // connections of other types were met, and logged

	keepAlivesOff atomic.Bool               // no connection is to wait for another request
	leaving       atomic.Bool               // a HandOver of the listener is under way: HTTP/2 is drained
	idleGuard     atomic.Pointer[idleGuard] // that net/http has, or is about to get; nil: none

	// introducing is held while the hooks are called for a new connection: net/http calls
	// ConnContext, and ConnState with StateNew, on one goroutine. The hooks may block, and
	// may call the Server's methods: none of these needs it.
	introducing sync.Mutex

	closeOnce sync.Once
	closeErr  error // guarded by closeOnce
}

func (s *Server) newServeCall(l net.Listener, config *tls.Config) *serveCall {
	call := &serveCall{server: s, listener: l, tls: config, base: context.Background(), done: make(chan struct{})}
	call.keeps = s.keeps && !monotime.InBubble() // in a bubble of testing/synctest the loops, which are outside, can't reach a queue
	if call.keeps && s.canReadTLS(config) {
		call.way = s.way
		call.fast = !s.netHTTP1 && protocols(s.srv).HTTP1()
		call.streams, call.clearHTTP2 = call.newStreams(), protocols(s.srv).UnencryptedHTTP2()
	}
	call.fieldsMax = fieldsMax(s.srv)
	call.handshakes = s.newHandshakes()
	if s.user.baseContext != nil {
		call.base = s.callBaseContext(l)
		if call.base == nil {
			panic("BaseContext returned a nil context")
		}
	}
	call.ctx = context.WithValue(call.base, http.ServerContextKey, s.srv)
	listeners := perLoop(l)
	call.workers = make([]workers.Pool[*conn], min(len(listeners), serving.Sets()))
	for i := range call.workers {
		call.workers[i].Work = (*conn).serve
		call.workers[i].Look = (*conn).visitLoop
		call.workers[i].Socket = (*conn).socket
	}
	for i, from := range listeners {
		q := &connQueue{call: call, server: s, from: from, wake: make(chan struct{}, 1), told: make(chan struct{}, 1), parksAtOnce: s.parkAfter == 0}
		q.workers = &call.workers[i%len(call.workers)]
		q.counts = s.counters.Cells[i%len(call.workers)%len(s.counters.Cells)]
		q.sweeper = newSweeper(s.parkAfter, q.sweep)
		call.queues = append(call.queues, q)
	}
	if call.fast || call.streams != nil {
		call.addrTexts = new(addrTexts)
	}
	call.joinRoom()
	call.keepAlivesOff.Store(s.keepAlivesOff.Load())
	call.addGuards()
	call.served = make(chan error, len(call.queues))
	call.refs.Store(int64(len(call.queues)))
	call.loops.Store(int64(len(call.queues)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.calls[call] = struct{}{}
	if call.streams != nil {
		s.keepStreamsLocked(call.streams)
	}
	call.setHandover(s.handoverLocked(l))
	return call
}

// addGuards gives net/http the guards that the call needs, as its first connections.
func (call *serveCall) addGuards() {
	first := &call.queues[0].mu.ready
	if call.fast || call.streams != nil {
		g := newShutdownGuard(call)
		call.guards, *first = append(call.guards, &g.guard), append(*first, g)
	}
	if call.keeps {
		g := newIdleGuard(call)
		call.idleGuard.Store(g)
		call.guards, *first = append(call.guards, &g.guard), append(*first, g)
	}
}

// perLoop returns the listeners to accept from: one per socket if there are several,
// and descriptors for them.
func perLoop(l net.Listener) []net.Listener {
	if pl, ok := l.(*percore.Listener); ok {
		if split, err := pl.PerLoop(); err == nil {
			all := make([]net.Listener, len(split))
			for i := range split {
				all[i] = split[i]
			}
			return all
		}
	}
	return []net.Listener{l}
}

// run serves until the listener fails.
func (call *serveCall) run() error {
	failed := make(chan error, len(call.queues))
	for _, q := range call.queues {
		go func() {
			err := call.server.srv.Serve(q)
			for _, g := range call.guards {
				g.settle() // if it was not accepted
			}
			call.served <- err
			q.introduced()
			q.closeKept()
		}()
		go func() {
			for _, g := range call.guards {
				<-g.settled
			}
			failed <- q.acceptLoop()
			call.loops.Add(-1) // first: see left
			call.release()
		}()
	}
	err := <-failed
	// End the other loops. Its error is of no interest, now or to a Close later.
	call.closeOnce.Do(func() { call.listener.Close() })
	for range call.queues[1:] {
		<-failed
	}
	if call.ended.Load() {
		return <-call.served // it knows why
	}
	return err
}

// release drops a reference. With the last one net/http has nothing to wait for
// any more.
func (call *serveCall) release() {
	if call.refs.Add(-1) > 0 {
		return
	}
	for _, q := range call.queues {
		q.close()
	}
	for i := range call.workers {
		call.workers[i].Close()
	}
	call.closeHTTP2()
	call.limits.RemoveIdler(call)
	s := call.server
	s.mu.Lock()
	delete(s.mu.calls, call)
	s.mu.Unlock()
	close(call.done)
}

// close ends the call: the listener, all connections that net/http does not have at
// the moment, and from now on those that it gives back. net/http itself closes only the
// queues that it has begun to accept from.
func (call *serveCall) close() {
	for _, q := range call.queues {
		_ = q.Close()
		q.closeKept()
	}
	call.closeServed()
}

// closeServed closes the connections that workers have.
func (call *serveCall) closeServed() {
	for _, q := range call.queues {
		q.each(&q.mu.kept, (*conn).closeServed)
	}
	call.closeHTTP2()
}

// closeIdle closes the connections that are parked, or have been until just now.
func (call *serveCall) closeIdle() {
	for _, q := range call.queues {
		q.closeConns((*conn).hangUpIdle)
	}
	go call.drainIdleHTTP2() // its hooks may want locks that net/http holds
}

// parks reports whether net/http gives connections back that wait for a request.
func (call *serveCall) parks() bool { return call.way != probe.Unknown }

// keepsAlive reports whether a connection may wait for another request.
func (call *serveCall) keepsAlive() bool {
	return !call.ended.Load() && !call.keepAlivesOff.Load()
}

// warnForeign logs, once, that connections could be parked if not for their type.
func (call *serveCall) warnForeign(nc net.Conn) {
	if !call.keeps || features.EngineIsNet() || !call.foreign.CompareAndSwap(false, true) {
		return
	}
	call.server.logf("httpadapter: net/http serves connections of type %T: while idle they keep a goroutine "+
		"and buffers. Only a *percore.Conn is served by percore: give Serve the listener that percore.Listen returns, without a wrapper. %s", nc, insteadOf(nc))
}
