package h2

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2/internal/below"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/http2/hpack"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/shared/counters"
)

// A Server serves connections, from any number of listeners, with one handler. Make it with New.
// All methods are safe for concurrent use.
type Server struct {
	// immutable
	setup
	workers  []workerSet
	counters *counters.Set[counter] // a cell for each set of workers
	naps     bool                   // the workers end with the last connection: a Client's

	handshakes *serving.Handshakes

	next  atomic.Uint32 // the set of workers of the next connection
	ended atomic.Bool   // the server is closed and has no connection any more; set under mu

	mu struct {
		sync.Mutex
		listeners map[*net.Listener]struct{}
		first     *Conn               // of all connections
		conns     int                 // and of those whose handshake is under way
		limited   []*accepting.Limits // of listeners: see places
		empty     chan struct{}       // closed when conns becomes 0; nil: no Drain waits
		closed    bool
	}
}

// New makes a server. It panics if h is nil, or if a field of config is negative, unless its comment
// gives that a meaning.
func New(h Handler, config Config) *Server {
	if f, ok := h.(HandlerFunc); h == nil || ok && f == nil {
		panic("h2: New was called with a nil Handler")
	}
	if err := config.check(); err != nil {
		panic("h2: New: " + err.Error())
	}
	config.pingIdle = true
	s := newServer(config, serverSide{})
	s.handler = h
	if h, ok := h.(ConnHandler); ok {
		s.states = h.ConnState
	}
	if h, ok := h.(PingHandler); ok {
		s.pings = h.Ping
	}
	return s
}

// newServer makes a server without a handler, or the one inside a Client.
func newServer(config Config, side side) *Server {
	s := &Server{setup: setup{side: side, config: config.withDefaults()}}
	s.forget = s.leave
	s.limits = s.config.core()
	register, look := servers, item.look
	if side == (clientSide{}) {
		s.limits.ForClient()
		s.limits.Strings, s.errClosed, s.naps = clientStrings, errClientClosed, true
		register, look = clients, item.lookBriefly
	} else {
		s.limits.Strings, s.errClosed = hpack.NewInterner(), ErrServerClosed
	}
	s.config.Streams = int(s.limits.Streams)
	if config.TLS != nil {
		s.config.Accept = acceptTLS(withH2(config.TLS))
	}
	s.handshakes = serving.NewDefaultHandshakes()
	s.workers = make([]workerSet, counters.Cells())
	s.counters = counters.NewSet(len(s.workers), counterCount)
	counters.Enlist(register, s, s.counters)
	for i := range s.workers {
		s.workers[i].counts = s.counters.Cells[i]
		s.workers[i].Work = item.work
		s.workers[i].Look = look
		s.workers[i].Socket = item.socket
	}
	s.mu.listeners = make(map[*net.Listener]struct{})
	return s
}

// clientStrings is shared by all clients: some programs have a client for each connection.
var clientStrings = hpack.NewInterner()

// withH2 returns config with "h2" among its protocols.
func withH2(config *tls.Config) *tls.Config {
	config = config.Clone()
	if !slices.Contains(config.NextProtos, "h2") {
		config.NextProtos = append([]string{"h2"}, config.NextProtos...)
	}
	return config
}

// Serve accepts connections from l and serves them, until l fails or the server is closed. It closes
// l, and always returns an error: Accept's, or [ErrServerClosed]. Open connections go on.
func (s *Server) Serve(l net.Listener) error {
	if l == nil {
		return errNil("Serve", "net.Listener")
	}
	if !s.addListener(&l) {
		l.Close()
		return ErrServerClosed
	}
	defer s.removeListener(&l)
	err := serving.Accept(l, s.isClosed, func(err error, in time.Duration) {
		s.config.Log.Error("h2: Accept failed", "error", err, "retry", in)
	}, s.accepted)
	if s.isClosed() {
		return ErrServerClosed
	}
	return err
}

// accepted takes a new connection in.
func (s *Server) accepted(nc net.Conn) {
	var a Accepted
	if s.config.Accept != nil {
		a = s.config.Accept(nc)
	}
	if a.Handshake != nil {
		s.beginHandshake(nc, a)
	} else if _, err := s.Attach(nc, nil, a.User); err != nil {
		nc.Close()
	}
}

// beginHandshake begins a handshake; when it is done the server owns the connection.
func (s *Server) beginHandshake(nc net.Conn, a Accepted) {
	if !s.enter(nil) {
		nc.Close()
		return
	}
	_ = nc.SetDeadline(time.Now().Add(s.config.BeginTimeout))
	h := &serving.Handshake{
		Do:   func(h *serving.Handshake) { s.shakeHands(nc, a, h) },
		Cut:  func() { _ = nc.Close() },
		Lost: func(error) { s.handshakeFailed(nc) },
	}
	if a.ClientFirst {
		s.handshakes.Begin(nc, h)
	} else {
		s.handshakes.Enter(nc, h)
	}
}

func (s *Server) shakeHands(nc net.Conn, a Accepted, h *serving.Handshake) {
	done := false
	defer func() {
		if done {
			s.leave(nil)
		} else {
			s.handshakeFailed(nc) // also if Handshake has ended its goroutine
		}
	}()
	during := h.Conn(nc)
	served, err := a.Handshake(during)
	during.Done()
	switch {
	case !h.Finish() || err != nil:
		return
	case served == nil:
		done = true // it belongs to another server now
		return
	case served == net.Conn(during):
		served = nc
	}
	_ = nc.SetDeadline(time.Time{})
	_, err = s.Attach(served, nil, a.User)
	done = err == nil
}

func (s *Server) handshakeFailed(nc net.Conn) {
	s.counters.Cells[0].Add(countHandshakeErrors, 1)
	_ = nc.Close()
	s.leave(nil)
}

// acceptTLS returns a Config.Accept that speaks TLS.
func acceptTLS(config *tls.Config) func(net.Conn) Accepted {
	shake := func(nc net.Conn) (net.Conn, error) {
		tc := tls.Server(nc, config)
		err := tc.Handshake()
		if err == nil && tc.ConnectionState().NegotiatedProtocol != "h2" {
			err = errProtocol
		}
		return tc, err
	}
	return func(net.Conn) Accepted { return Accepted{Handshake: shake, ClientFirst: true} }
}

// errProtocol is the error of a handshake that chooses another protocol than HTTP/2.
var errProtocol = errors.New("h2: TLS has not chosen h2")

// Attach gives the server a connection, and bytes that were read from it before, usually the client's
// preface. It serves HTTP/2 whatever was read. nc is a *percore.Conn, or a *tls.Conn above one, after
// the handshake, or any other connection, for which a goroutine reads. From then on the server owns
// it. The Conn's User returns user.
func (s *Server) Attach(nc net.Conn, unread []byte, user any) (*Conn, error) {
	if nc == nil {
		return nil, errNil("Attach", "net.Conn")
	}
	c := &Conn{
		setup: &s.setup, user: user, below: below.Make(nc),
		workers: &s.workers[int(s.next.Add(1))%len(s.workers)],
		clock:   clock{ends: &noEnding}, waiting: &nothingWaits,
	}
	c.core.Init(s.limits)
	if s.config.reserve {
		c.Reserve()
	}
	if !s.enter(c) {
		return nil, s.errClosed
	}
	s.joinLimits(c)
	c.workers.counts.Add(countConns, 1)
	c.start(unread)
	return c, nil
}

// enter counts a connection, and adds c, which is nil during the handshake. It reports false if the
// server is closed.
func (s *Server) enter(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	if s.naps && s.mu.conns == 0 {
		for i := range s.workers {
			s.workers[i].Open()
		}
	}
	s.mu.conns++
	if c != nil {
		if c.next = s.mu.first; c.next != nil {
			c.next.prev = c
		}
		s.mu.first = c
	}
	return true
}

// leave is for c, which has ended, or with nil for a handshake that is over.
func (s *Server) leave(c *Conn) {
	s.mu.Lock()
	if c != nil {
		s.unlinkLocked(c)
	}
	s.mu.conns--
	s.endIfDoneLocked()
	s.mu.Unlock()
	s.tellUnused()
}

func (s *Server) unlinkLocked(c *Conn) {
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.mu.first = c.next
	}
	c.prev, c.next = nil, nil
}

// InUse reports whether the server has a listener or a connection, including connections in their
// handshake.
func (s *Server) InUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.conns > 0 || len(s.mu.listeners) > 0
}

// tellUnused is for a server that has lost a listener or a connection.
func (s *Server) tellUnused() {
	if s.config.Unused != nil && !s.InUse() {
		s.config.Unused()
	}
}

// endIfDoneLocked ends the workers of a closed server when no connection is left, and those of a client.
func (s *Server) endIfDoneLocked() {
	if s.mu.conns > 0 {
		return
	}
	if s.naps || s.mu.closed {
		for i := range s.workers {
			s.workers[i].Close()
		}
	}
	if s.mu.closed && !s.ended.Swap(true) {
		limited := s.mu.limited
		go func() { // Accept takes mu under a lock of its own
			for _, limits := range limited {
				limits.RemoveIdler(places{s})
			}
		}()
	}
	if s.mu.empty != nil {
		close(s.mu.empty)
		s.mu.empty = nil
	}
}

func (s *Server) conns() (all []*Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := s.mu.first; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}

// places drains connections without streams, or with detached streams only, when as many are open as
// their listener's MaxConns allows and a client waits: see internal/accepting.
type places struct{ s *Server }

// joinLimits makes the Accept of c's listener find the server's connections, if their number is limited.
func (s *Server) joinLimits(c *Conn) {
	limits := c.below.Limits()
	if limits.Max() == 0 {
		return
	}
	s.mu.Lock()
	joins := !s.ended.Load() && !slices.Contains(s.mu.limited, limits)
	if joins {
		s.mu.limited = append(s.mu.limited, limits)
	}
	s.mu.Unlock()
	if joins {
		limits.AddIdler(places{s}) // without mu, which Accept takes under a lock of its own
		if s.ended.Load() {
			limits.RemoveIdler(places{s}) // endIfDoneLocked's may have come before
		}
	}
}

// EachIdle implements [accepting.Idler].
func (p places) EachIdle(l *accepting.Limits, do func(c accepting.IdleConn, since int64, peer netip.Addr)) {
	for _, c := range p.s.conns() {
		if since := (idleConn{c}).since(); since != 0 && c.below.Limits() == l {
			do(idleConn{c}, since, c.below.PC.RemoteAddrPort().Addr())
		}
	}
}

func (s *Server) addListener(l *net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false
	}
	s.mu.listeners[l] = struct{}{}
	return true
}

func (s *Server) removeListener(l *net.Listener) {
	s.mu.Lock()
	s.closeLocked(l)
	s.mu.Unlock()
	s.tellUnused()
}

// closeLocked closes a listener, unless it was closed: some panic when they are closed twice.
func (s *Server) closeLocked(l *net.Listener) {
	if _, ok := s.mu.listeners[l]; ok {
		delete(s.mu.listeners, l)
		(*l).Close()
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

// close closes the listeners, and the connections in their handshake.
func (s *Server) close() {
	s.mu.Lock()
	s.mu.closed = true
	for l := range s.mu.listeners {
		s.closeLocked(l)
	}
	s.endIfDoneLocked()
	s.mu.Unlock()
	s.handshakes.Close()
}

// GoAway lets all connections that the server has end, as [Conn.GoAway] does. It does not wait, and the
// server goes on with later ones.
func (s *Server) GoAway() {
	for _, c := range s.conns() {
		c.GoAway()
	}
}

// GoAwayIdle is GoAway for the connections that have no stream.
func (s *Server) GoAwayIdle() {
	for _, c := range s.conns() {
		c.GoAwayIfIdle()
	}
}

// Drain is GoAway, and waits for the streams: it returns nil when no connection is left, or ctx's error
// when ctx is done. The server takes connections as before, and serves later ones without telling them
// anything. A handler must not wait for Drain.
func (s *Server) Drain(ctx context.Context) error {
	if ctx == nil {
		return errNil("Drain", "context.Context")
	}
	s.GoAway()
	s.mu.Lock()
	if s.mu.conns == 0 {
		s.mu.Unlock()
		return nil
	}
	if s.mu.empty == nil {
		s.mu.empty = make(chan struct{})
	}
	empty := s.mu.empty
	s.mu.Unlock()
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Shutdown closes the listeners, and then does what [Server.Drain] does. A handler must not wait for it.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNil("Shutdown", "context.Context")
	}
	s.close()
	return s.Drain(ctx)
}

// Close closes the listeners and all connections at once. It does not wait for handlers.
func (s *Server) Close() error {
	s.close()
	for _, c := range s.conns() {
		_ = c.Close()
	}
	return nil
}

// Stats returns the metrics of the server.
func (s *Server) Stats() Stats {
	return sums(s.counters.Sums()).stats()
}
