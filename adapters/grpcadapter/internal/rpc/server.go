package rpc

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
)

// A Server serves the calls of registered services. All methods are safe for concurrent use.
type Server struct {
	// immutable
	config  Config
	http    *h2.Server
	unknown *method       // nil: none
	stopped chan struct{} // closed when Stop or GracefulStop has ended
	counts  []counts

	turn atomic.Uint32 // the counts of the next connection

	services services // guarded by mu until serving is set, and immutable from then on
	handlers group
	guests   sync.Map    // the connections of other servers: *h2.Conn to *conn; see guest.go
	stops    atomic.Bool // no call of another server's connections is served any more

	mu sync.Mutex

	// guarded by mu
	serving   bool
	stopping  bool
	listeners map[*net.Listener]struct{}
	shaking   map[net.Conn]struct{} // whose handshake is under way
	conns     int                   // including those that are shaking
	gone      *sync.Cond            // conns has become 0
	ended     bool                  // stopped is closed
	requests  map[*call]struct{}    // calls of ServeHTTP
}

// New makes a server.
func New(config Config) *Server {
	s := &Server{
		config: config, stopped: make(chan struct{}), counts: newCounts(),
		listeners: make(map[*net.Listener]struct{}), shaking: make(map[net.Conn]struct{}),
		requests: make(map[*call]struct{}),
	}
	s.gone = sync.NewCond(&s.mu)
	s.handlers.done = sync.NewCond(&s.handlers.mu)
	if config.Unknown != nil {
		s.unknown = &method{desc: config.Unknown}
	}
	s.http = h2.New(s, config.http())
	if !config.Hidden {
		s.enlist()
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
	s.services.add(desc, impl, func(d *grpc.MethodDesc) grpc.StreamHandler { return unaryHandler(d, s.config.Unary) })
}

// Adopt registers a service of another server, whose unary methods are streams already. It must be
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

// Serve serves the connections of l, like grpc.Server.Serve. prepare is called for each of them, and
// returns what is served.
func (s *Server) Serve(l net.Listener, prepare func(net.Conn) net.Conn) error {
	if !s.addListener(&l) {
		l.Close()
		return grpc.ErrServerStopped
	}
	err := s.accept(l, prepare)
	s.mu.Lock()
	s.closeLocked(&l)
	stopping, unused := s.stopping, s.unusedLocked()
	s.mu.Unlock()
	s.tellUnused(unused)
	if stopping {
		<-s.stopped
		return nil
	}
	return err
}

func (s *Server) addListener(l *net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving = true
	if s.stopping {
		return false
	}
	s.listeners[l] = struct{}{}
	return true
}

// closeLocked closes a listener, unless it was closed. A listener may panic when it is closed twice.
func (s *Server) closeLocked(l *net.Listener) {
	if _, ok := s.listeners[l]; ok {
		delete(s.listeners, l)
		(*l).Close()
	}
}

// The pauses after an Accept that failed.
const (
	acceptDelayMin = 5 * time.Millisecond
	acceptDelayMax = time.Second
)

// accept takes connections until that fails.
func (s *Server) accept(l net.Listener, prepare func(net.Conn) net.Conn) error {
	var delay time.Duration
	for {
		nc, err := l.Accept()
		if err != nil {
			if t, ok := err.(interface{ Temporary() bool }); !ok || !t.Temporary() || s.isStopping() {
				return err
			}
			delay = min(max(2*delay, acceptDelayMin), acceptDelayMax)
			logger.Errorf("Accept error: %v; retrying in %v", err, delay)
			time.Sleep(delay)
			continue
		}
		delay = 0
		nc = prepare(nc)
		if !s.addConn(nc) {
			nc.Close()
		} else if s.config.Creds != nil {
			go s.shakeHands(nc)
		} else {
			s.attach(nc, nc, nil)
		}
	}
}

func (s *Server) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *Server) addConn(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.conns++
	s.shaking[nc] = struct{}{}
	return true
}

// forget is called when a connection has ended.
func (s *Server) forget() {
	s.mu.Lock()
	if s.conns--; s.conns == 0 {
		s.gone.Broadcast()
	}
	unused := s.unusedLocked()
	s.mu.Unlock()
	s.tellUnused(unused)
}

// Unused reports whether there is neither a listener nor a connection.
func (s *Server) Unused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unusedLocked()
}

func (s *Server) unusedLocked() bool { return s.conns == 0 && len(s.listeners) == 0 }

func (s *Server) tellUnused(unused bool) {
	if unused && s.config.Unused != nil {
		s.config.Unused()
	}
}

// bareConn hides everything of a connection but a net.Conn from credentials, so that those of TLS
// return the *tls.Conn itself, which package h2 reads without a goroutine. Those are grpc-go's, on any
// connection, and on percore's all that say so in Info. Others get the connection as it was accepted:
// they may know it by its type.
type bareConn struct{ net.Conn }

var tlsCreds = reflect.TypeOf(credentials.NewTLS(nil))

// forCreds returns what the credentials get of a connection.
func (s *Server) forCreds(raw net.Conn) net.Conn {
	_, ours := raw.(*percore.Conn)
	if creds := s.config.Creds; reflect.TypeOf(creds) == tlsCreds || ours && creds.Info().SecurityProtocol == "tls" {
		return bareConn{raw}
	}
	return raw
}

// NetConn returns the connection below.
func (c bareConn) NetConn() net.Conn { return c.Conn }

// shakeHands does the handshake of the credentials.
func (s *Server) shakeHands(raw net.Conn) {
	_ = raw.SetDeadline(time.Now().Add(s.config.BeginTimeout))
	nc, info, err := s.config.Creds.ServerHandshake(s.forCreds(raw))
	if err != nil {
		s.mu.Lock()
		delete(s.shaking, raw)
		s.mu.Unlock()
		if !errors.Is(err, credentials.ErrConnDispatched) { // that one belongs to another server now
			raw.Close()
		}
		s.forget()
		return
	}
	_ = raw.SetDeadline(time.Time{})
	if bare, ok := nc.(bareConn); ok {
		nc = bare.Conn
	}
	s.attach(raw, nc, info)
}

// attach gives a connection to the HTTP/2 server.
func (s *Server) attach(raw, nc net.Conn, info credentials.AuthInfo) {
	s.mu.Lock()
	delete(s.shaking, raw)
	s.mu.Unlock()
	if _, err := s.http.Attach(nc, nil, newConn(s, raw, nc, info)); err != nil {
		nc.Close()
		s.forget()
	}
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

// Drain tells the clients of all connections of Serve to open no more calls on them.
func (s *Server) Drain() { s.http.Drain() }

// Stop closes all listeners and connections. It waits for the handlers only if Config says so.
func (s *Server) Stop() { s.stop(false) }

// GracefulStop closes the listeners, and waits for the calls that have begun.
func (s *Server) GracefulStop() { s.stop(true) }

func (s *Server) stop(graceful bool) {
	s.endConns(graceful)
	if graceful || s.config.WaitForHandlers {
		s.handlers.wait()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.stopped)
	}
}

// CloseConns closes all listeners and connections, and takes no more. Stop or GracefulStop must
// follow.
func (s *Server) CloseConns() { s.endConns(false) }

// endConns ends all listeners and connections, and waits for that.
func (s *Server) endConns(graceful bool) {
	s.mu.Lock()
	s.stopping = true
	for l := range s.listeners {
		s.closeLocked(l)
	}
	for nc := range s.shaking {
		nc.Close()
	}
	s.mu.Unlock()
	s.stops.Store(true)
	if graceful {
		_ = s.http.Shutdown(context.Background())
	} else {
		s.endGuests()
		_ = s.http.Close()
	}
	s.mu.Lock()
	for s.conns > 0 {
		s.gone.Wait()
	}
	s.mu.Unlock()
}

// group counts handlers. Unlike a sync.WaitGroup it may be waited for while others begin.
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
