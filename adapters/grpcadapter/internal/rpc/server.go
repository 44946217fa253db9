package rpc

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/shared/counters"
)

// A Server serves the calls of registered services. All methods are safe for concurrent use.
type Server struct {
	// immutable
	config   Config
	unary    grpc.UnaryServerInterceptor  // nil: there are none
	stream   grpc.StreamServerInterceptor // the same
	stats    stats.Handler                // the same
	http     *h2.Server
	unknown  *method       // nil: none
	stopped  chan struct{} // closed when Stop or GracefulStop has ended
	counters *counters.Set[counter]

	services    services // guarded by mu until serving is set, and immutable from then on
	handlers    group
	sharedConns sync.Map    // the connections of other servers: *h2.Conn to *conn; see shared.go
	stopping    atomic.Bool // by Stop or GracefulStop: shared connections have no more calls
	end         sync.Once   // of stopped

	mu sync.Mutex

	// guarded by mu
	serving  bool
	requests map[*call]struct{} // calls of ServeHTTP
}

// New makes a server.
func New(config Config) *Server {
	s := &Server{
		config: config, unary: chainUnary(config.Unary), stream: chainStream(config.Stream), stats: combineStats(config.Stats),
		stopped: make(chan struct{}), counters: counters.NewSet(counters.Cells(), counterCount),
		requests: make(map[*call]struct{}),
	}
	s.handlers.done = sync.NewCond(&s.handlers.mu)
	if config.Unknown != nil {
		s.unknown = &method{desc: config.Unknown}
	}
	to := config.http()
	to.Accept = s.accepted
	s.http = h2.New(s, to)
	if !config.Hidden {
		counters.Enlist(servers, s, s.counters)
	}
	return s
}

// Register registers a service. It must be called before Serve. Like grpc-go's, it ends the program
// with a line in the log if the service is wrong.
func (s *Server) Register(desc *grpc.ServiceDesc, impl any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.services.check(desc, impl); err != nil {
		logger.Fatal(err)
	}
	if s.serving {
		logger.Fatalf("grpc: Server.RegisterService after Server.Serve for %q", desc.ServiceName)
	}
	s.services.add(desc, impl, func(d *grpc.MethodDesc) grpc.StreamHandler { return unaryHandler(d, s.unary) })
}

// Adopt registers a service of another server, whose unary methods are already streams. It must be
// called before Serve.
func (s *Server) Adopt(name string, impl, metadata any, methods map[string]*grpc.StreamDesc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to := s.services.addService(name, impl, metadata)
	for methodName, desc := range methods {
		s.services.addMethod(name, to, methodName, desc)
	}
}

// ServiceInfo describes the registered services.
func (s *Server) ServiceInfo() map[string]grpc.ServiceInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.services.info()
}

// Serve serves the connections of l, like grpc.Server.Serve.
func (s *Server) Serve(l net.Listener) error {
	if !s.startServing() {
		l.Close()
		return grpc.ErrServerStopped
	}
	err := s.http.Serve(l)
	if s.stopping.Load() {
		<-s.stopped
		return nil
	}
	return err
}

// startServing ends the time for Register. It reports false if the server is being stopped.
func (s *Server) startServing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = true
	return !s.stopping.Load()
}

// Unused reports whether there is neither a listener nor a connection.
func (s *Server) Unused() bool { return !s.http.InUse() }

// accepted implements [h2.Config.Accept].
func (s *Server) accepted(raw net.Conn) h2.Accepted {
	c := &conn{server: s, raw: raw, counts: s.counters.Next()}
	if s.config.Creds == nil {
		return h2.Accepted{User: c}
	}
	return h2.Accepted{User: c, Handshake: c.shakeHands, ClientFirst: s.config.speaksTLS()}
}

// Accept implements [h2.Handler].
func (s *Server) Accept(hc *h2.Conn, r *h2.Request) h2.StreamHandler {
	return hc.User().(*conn).newCall(r)
}

// ConnState implements [h2.ConnHandler].
func (s *Server) ConnState(hc *h2.Conn, state h2.ConnState) {
	switch state {
	case h2.Ready:
		hc.User().(*conn).ready()
	case h2.Closed:
		hc.User().(*conn).closed()
	}
}

// Ping implements [h2.PingHandler].
func (s *Server) Ping(hc *h2.Conn, answered bool) { hc.User().(*conn).ping(hc, answered) }

// Drain tells the clients of all connections of Serve to open no more calls on them, and calls the
// functions of Config.Drains.
func (s *Server) Drain() {
	s.config.Drains.Call()
	s.http.GoAway()
}

// OnDrain adds a function to Config.Drains.
func (s *Server) OnDrain(f func()) { s.config.Drains.Add(f) }

// Stop closes all listeners and connections. It waits for the handlers only if Config says so.
func (s *Server) Stop() { s.stop(false) }

// GracefulStop closes the listeners, and waits for the calls that have begun.
func (s *Server) GracefulStop() { s.stop(true) }

func (s *Server) stop(graceful bool) {
	if graceful {
		s.config.Drains.Call()
	}
	s.endConns(graceful)
	if graceful || s.config.WaitForHandlers {
		s.handlers.wait()
	}
	s.end.Do(func() { close(s.stopped) })
}

// CloseConns closes all listeners and connections, and takes no more. Stop or GracefulStop must
// follow.
func (s *Server) CloseConns() { s.endConns(false) }

// endConns ends all listeners and connections, and waits for that.
func (s *Server) endConns(graceful bool) {
	s.stopping.Store(true)
	if !graceful {
		s.endShared()
		s.endRequests()
		_ = s.http.Close()
	}
	_ = s.http.Shutdown(context.Background())
}

// Stats returns the metrics of the server.
func (s *Server) Stats() Stats {
	all := sums(s.counters.Sums()).stats()
	all.HTTP2 = s.http.Stats()
	return all
}

// group counts handlers. Unlike with a sync.WaitGroup, handlers may begin while others are waited for.
type group struct {
	n       atomic.Int64
	waiters atomic.Int32
	mu      sync.Mutex
	done    *sync.Cond // n may have become 0
}

func (g *group) add() { g.n.Add(1) }

// leave publishes the new count before it looks for waiters, and wait does it the other way round.
func (g *group) leave() {
	if g.n.Add(-1) == 0 && g.waiters.Load() > 0 {
		g.mu.Lock()
		g.done.Broadcast()
		g.mu.Unlock()
	}
}

func (g *group) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiters.Add(1)
	defer g.waiters.Add(-1)
	for g.n.Load() > 0 {
		g.done.Wait()
	}
}
