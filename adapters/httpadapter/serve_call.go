package httpadapter

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/serving"
)

// serveCall is one call of Serve: a listener, its connections, and the listener that gives net/http the
// connections that aren't ours, and that net/http closes when it shuts down.
//
// It may outlive the call: connections go on after their listener was closed. It ends with the last
// accept loop or connection.
type serveCall struct {
	// immutable
	server   *Server
	listener net.Listener
	below    net.Listener // the same, or percore's below it: see tls_listener.go
	overTLS  bool
	base     context.Context
	ctx      context.Context // of connections, before the user's ConnContext
	sockets  []net.Listener  // the listener's, to accept from
	nethttp  *nethttpListener
	keeps    bool       // percore's connections are served here, and not by net/http
	http1    *h1.Server // of percore's connections, with a queue for each socket
	streams  *h2.Server // of those that speak HTTP/2; nil: net/http serves them, if it speaks that
	guards   []*guard   // must be in their place before a connection is accepted

	served chan error    // the result of net/http's Serve
	done   chan struct{} // closed with the last reference

	// atomic
	refs    atomic.Int64 // accept loops and connections
	loops   atomic.Int64 // the accept loops among them
	ended   atomic.Bool  // net/http has closed its listener: it shuts down, or could not start
	foreign atomic.Bool  // connections of other types were met, and logged

	keepAlivesOff atomic.Bool               // no connection is to wait for another request
	leaving       atomic.Bool               // a HandOver of the listener is under way: HTTP/2 is drained
	idleGuard     atomic.Pointer[idleGuard] // that net/http has, or is about to get; nil: none

	// introducing is held while the hooks are called for a new connection: net/http calls ConnContext,
	// and ConnState with StateNew, on one goroutine. The hooks may block, and may call the Server's
	// methods, which never need this lock.
	introducing sync.Mutex

	closeOnce sync.Once
	closeErr  error // guarded by closeOnce
}

func (s *Server) newServeCall(l net.Listener, tlsConfig *tls.Config) *serveCall {
	call := &serveCall{server: s, listener: l, below: l, base: context.Background(), done: make(chan struct{})}
	call.nethttp = newNethttpListener(call)
	wrapped := belowTLS(l)
	call.overTLS = tlsConfig != nil || wrapped != nil
	call.keeps = s.keeps && !monotime.InBubble() && (!call.overTLS || s.canReadTLS()) // in a bubble of testing/synctest the loops are outside
	if wrapped != nil && call.keeps {
		call.below = wrapped
	}
	if s.user.baseContext != nil {
		call.base = s.callBaseContext(l)
		if call.base == nil {
			panic("BaseContext returned a nil context")
		}
	}
	call.ctx = context.WithValue(call.base, http.ServerContextKey, s.srv)
	call.sockets = perLoop(call.below)
	sides := make([]func(net.Conn) *tls.Conn, len(call.sockets))
	for i := range sides {
		switch {
		case tlsConfig != nil:
			sides[i] = func(nc net.Conn) *tls.Conn { return tls.Server(nc, tlsConfig) }
		case wrapped != nil && call.keeps:
			sides[i] = tlsSideOf(l)
		}
	}
	config := h1.Config{
		Host: call, HTTP: s.srv, ConnState: s.user.connState, Context: call.ctx,
		FieldsMax: fieldsMax(s.srv), BeginTime: s.beginTime, Handshakes: s.newHandshakes(), Counts: s.counters.Cells,
	}
	if call.keeps {
		spoken := protocols(s.srv)
		config.HTTP1 = spoken.HTTP1()
		config.ClearHTTP2 = spoken.UnencryptedHTTP2() && !call.overTLS && speaksHTTP2(s.srv)
		if limits := seam.LimitsOf(call.below); limits.Max() > 0 {
			config.Limits = limits
		}
		call.streams = call.newStreams()
	}
	call.http1 = h1.New(config, sides)
	call.keepAlivesOff.Store(s.keepAlivesOff.Load())
	call.addGuards()
	call.served = make(chan error, 1)
	call.refs.Store(int64(len(call.sockets)))
	call.loops.Store(int64(len(call.sockets)))
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
	shutdown, idle := &shutdownGuard{guard: newGuard(call)}, newIdleGuard(call)
	call.idleGuard.Store(idle)
	call.guards = []*guard{&shutdown.guard, &idle.guard}
	call.nethttp.push(shutdown)
	call.nethttp.push(idle)
}

// perLoop returns the listeners to accept from: one per socket, if there are descriptors for that.
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
	failed := make(chan error, len(call.sockets))
	go func() {
		err := call.server.srv.Serve(call.nethttp)
		for _, g := range call.guards {
			g.settle() // if it was not accepted
		}
		call.served <- err
		call.nethttp.drop()
		call.http1.CloseKept()
	}()
	for i, l := range call.sockets {
		go func() {
			for _, g := range call.guards {
				<-g.settled
			}
			failed <- call.acceptLoop(l, call.http1.Queues[i])
			call.loops.Add(-1) // first: see left
			call.release()
		}()
	}
	err := <-failed
	// End the other loops. The error doesn't matter, now or to a later Close.
	call.closeOnce.Do(func() { call.listener.Close() })
	for range call.sockets[1:] {
		<-failed
	}
	if call.ended.Load() {
		return <-call.served // it knows why
	}
	return err
}

// acceptLoop accepts connections until that fails permanently. It logs temporary failures, and waits, as
// net/http does.
func (call *serveCall) acceptLoop(from net.Listener, q *h1.Queue) error {
	return serving.Accept(from, call.ended.Load, func(err error, in time.Duration) {
		call.server.logf("http: Accept error: %v; retrying in %v", err, in)
	}, func(nc net.Conn) { call.accepted(nc, q) })
}

func (call *serveCall) accepted(nc net.Conn, q *h1.Queue) {
	pc, ok := nc.(*percore.Conn)
	if ok && call.keeps {
		call.refs.Add(1)
		q.Accept(pc)
		return
	}
	if !ok {
		call.server.counts.Add(countForeign, 1)
		call.warnForeign(nc)
	}
	if q.TLS != nil {
		nc = q.TLS(nc)
	}
	call.nethttp.introduce(nc)
}

// release drops a reference, and with the last one ends the call.
func (call *serveCall) release() {
	if call.refs.Add(-1) > 0 {
		return
	}
	call.nethttp.end()
	call.http1.Close()
	call.closeHTTP2()
	s := call.server
	s.mu.Lock()
	delete(s.mu.calls, call)
	s.mu.Unlock()
	close(call.done)
}

// close closes the listener, which net/http does only if it has begun to accept from it, and all
// connections.
func (call *serveCall) close() {
	_ = call.nethttp.Close()
	call.http1.CloseKept()
	call.closeServed()
}

// closeServed closes the connections that workers have.
func (call *serveCall) closeServed() {
	call.http1.CloseServed()
	call.closeHTTP2()
}

// KeepAlives reports whether connections may wait for another request. It is for both hosts.
func (call *serveCall) KeepAlives() bool {
	return !call.ended.Load() && !call.keepAlivesOff.Load()
}

// Logf is for both hosts.
func (call *serveCall) Logf(format string, args ...any) { call.server.logf(format, args...) }

// warnForeign logs once that only their type keeps connections from being served here.
func (call *serveCall) warnForeign(nc net.Conn) {
	if !call.keeps || features.EngineIsNet() || !call.foreign.CompareAndSwap(false, true) {
		return
	}
	name, instead := describeForeign(nc)
	call.server.logf("httpadapter: net/http serves connections of type %s: while idle they keep a goroutine "+
		"and buffers. Only a *percore.Conn is served by percore: give Serve the listener that percore.Listen "+
		"returns, without a wrapper. %s", name, instead)
}
