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
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/workers"
)

// serveCall is one call of Serve: a listener, its connections, and the listener through which net/http
// gets those that aren't ours, and notifies the call of its end.
//
// It may outlive the call: connections go on after their listener was closed. It ends with the last of
// the accept loops and connections, or when net/http closes its listener, which is how it shuts down.
type serveCall struct {
	// immutable
	server   *Server
	listener net.Listener
	below    net.Listener // the same, or percore's below it: see tls_listener.go
	overTLS  bool
	base     context.Context
	ctx      context.Context // of connections, before the user's ConnContext
	queues   []*connQueue
	nethttp  *nethttpListener
	keeps    bool       // percore's connections are served here, and otherwise by net/http
	http1    bool       // HTTP/1 is spoken
	streams  *h2.Server // of the connections that speak HTTP/2; nil: net/http serves them, if it speaks that

	clearHTTP2 bool // they may do so in clear
	fieldsMax  int  // how many lines the fields of a header may have
	workers    []workers.Pool[*conn]
	handshakes *serving.Handshakes
	addrTexts  *addrTexts
	limits     *accepting.Limits // nil: the number of connections is not limited
	guards     []*guard          // that must be in their place before a connection is accepted
	served     chan error        // the result of net/http's Serve
	done       chan struct{}     // closed with the last reference

	// atomic
	refs    atomic.Int64 // accept loops and connections
	loops   atomic.Int64 // the accept loops among them
	ended   atomic.Bool  // net/http has closed its listener: it shuts down, or could not start
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
	call := &serveCall{server: s, listener: l, below: l, base: context.Background(), done: make(chan struct{})}
	call.nethttp = newNethttpListener(call)
	wrapped := belowTLS(l)
	call.overTLS = config != nil || wrapped != nil
	call.keeps = s.keeps && !monotime.InBubble() && (!call.overTLS || s.canReadTLS()) // in a bubble of testing/synctest the loops are outside
	if wrapped != nil && call.keeps {
		call.below = wrapped
	}
	if spoken := protocols(s.srv); call.keeps {
		call.http1, call.clearHTTP2 = spoken.HTTP1(), spoken.UnencryptedHTTP2() && !call.overTLS && speaksHTTP2(s.srv)
		call.streams = call.newStreams()
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
	listeners := perLoop(call.below)
	call.workers = make([]workers.Pool[*conn], min(len(listeners), serving.Sets()))
	for i := range call.workers {
		call.workers[i].Work = (*conn).serve
		call.workers[i].Look = (*conn).visitLoop
		call.workers[i].Socket = (*conn).socket
	}
	for i, from := range listeners {
		q := &connQueue{call: call, server: s, from: from}
		switch {
		case config != nil:
			q.tls = func(nc net.Conn) *tls.Conn { return tls.Server(nc, config) }
		case wrapped != nil && call.keeps:
			q.tls = tlsSideOf(l)
		}
		q.workers = &call.workers[i%len(call.workers)]
		q.counts = s.counters.Cells[i%len(call.workers)%len(s.counters.Cells)]
		call.queues = append(call.queues, q)
	}
	call.addrTexts = new(addrTexts)
	call.joinRoom()
	call.keepAlivesOff.Store(s.keepAlivesOff.Load())
	call.addGuards()
	call.served = make(chan error, 1)
	call.refs.Store(int64(len(call.queues)))
	call.loops.Store(int64(len(call.queues)))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.calls[call] = struct{}{}
	if call.streams != nil {
		s.keepStreamsLocked(call.streams)
	}
	for _, h := range s.mu.handovers {
		if call.accepts(h.listener) {
			call.setHandover(h)
		}
	}
	return call
}

// addGuards gives net/http the guards that the call needs, as its first connections.
func (call *serveCall) addGuards() {
	if !call.keeps {
		return
	}
	shutdown, idle := newShutdownGuard(call), newIdleGuard(call)
	call.idleGuard.Store(idle)
	call.guards = []*guard{&shutdown.guard, &idle.guard}
	call.nethttp.push(shutdown)
	call.nethttp.push(idle)
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
	go func() {
		err := call.server.srv.Serve(call.nethttp)
		for _, g := range call.guards {
			g.settle() // if it was not accepted
		}
		call.served <- err
		call.nethttp.drop()
		call.closeKept()
	}()
	for _, q := range call.queues {
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
	call.nethttp.end()
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

// close ends the call: the listener, and all connections. net/http itself closes only a listener that it
// has begun to accept from.
func (call *serveCall) close() {
	_ = call.nethttp.Close()
	call.closeKept()
	call.closeServed()
}

// closeKept closes the connections that wait.
func (call *serveCall) closeKept() {
	for _, q := range call.queues {
		q.each((*conn).hangUp)
	}
}

// closeServed closes the connections that workers have.
func (call *serveCall) closeServed() {
	for _, q := range call.queues {
		q.each((*conn).closeServed)
	}
	call.closeHTTP2()
}

// closeIdle closes the connections between two requests.
func (call *serveCall) closeIdle() {
	for _, q := range call.queues {
		q.each((*conn).hangUpIdle)
	}
	go call.drainIdleHTTP2() // its hooks may want locks that net/http holds
}

// keepsAlive reports whether a connection may wait for another request.
func (call *serveCall) keepsAlive() bool {
	return !call.ended.Load() && !call.keepAlivesOff.Load()
}

// warnForeign logs, once, that connections could be served here if not for their type.
func (call *serveCall) warnForeign(nc net.Conn) {
	if !call.keeps || features.EngineIsNet() || !call.foreign.CompareAndSwap(false, true) {
		return
	}
	call.server.logf("httpadapter: net/http serves connections of type %s: while idle they keep a goroutine "+
		"and buffers. Only a *percore.Conn is served by percore: give Serve the listener that percore.Listen returns, without a wrapper. %s", nameOf(nc), insteadOf(nc))
}
