package httpadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/serving"
	"github.com/percore/percore/internal/shared/counters"
	"github.com/percore/percore/internal/shared/drain"
	"github.com/percore/percore/internal/tlsread"
)

// Server runs an http.Server on percore. It has the methods of http.Server that start and stop a
// server; use them instead of the http.Server's own. All are safe for concurrent use.
type Server struct {
	// immutable
	srv *http.Server
	config

	// written by install, before anything reads it
	user  hooks
	ownH2 bool // the program has set TLSNextProto["h2"]
	keeps bool // percore's connections are served here

	// atomic
	counters      *counters.Set[h1.Counter]
	counts        counters.Cell[h1.Counter] // one of counters, for what is rare; queues have theirs
	used          atomic.Bool               // a Serve of the Server was called
	bypassed      atomic.Bool               // it was logged that the http.Server's own Serve was called
	keepAlivesOff atomic.Bool               // by SetKeepAlivesEnabled: each call knows better, see idleGuard
	draining      atomic.Bool               // Drain was called
	foreign       atomic.Int64              // connections that are not ours, as far as ConnState knows

	installed sync.Once
	drains    drain.Hooks // RegisterOnDrain's

	mu struct {
		sync.Mutex
		calls     map[*serveCall]struct{} // that still have listeners or connections
		closed    bool
		handovers []*handoverOut // the HandOvers that are under way, one of a listener's at most

		streams     []*h2.Server // of the calls, and of ended ones whose handlers may still run
		streamsGone h2.Stats     // the metrics of all others
	}
}

// Wrap returns a Server that runs srv on percore. Configure srv as usual, before the first Serve. Wrap
// it only once: a Server can serve several listeners.
//
// At the first Serve the Server puts functions of its own into srv.ConnState, srv.Handler and, where
// they are set, srv.ConnContext and srv.BaseContext. They call the user's functions, so set these
// before, as for net/http. Nothing else in srv changes, and handlers still find srv under
// [http.ServerContextKey].
//
// Start the server with the Server's methods. With srv.Serve net/http would serve all requests. That
// is logged once: Wrap puts a function into srv.BaseContext that notices it and calls the user's. Wrap
// panics if srv is nil.
//
// srv.Shutdown, srv.Close and srv.SetKeepAlivesEnabled also work: Wrap calls srv.RegisterOnShutdown, so
// that Shutdown calls the functions of [Server.RegisterOnDrain]. (If srv has
// DisableGeneralOptionsHandler, SetKeepAlivesEnabled(false) closes connections that wait only when
// Serve was called more than five seconds ago.)
func Wrap(srv *http.Server, opts ...Option) *Server {
	if srv == nil {
		panic("httpadapter: Wrap was called with a nil *http.Server")
	}
	s := newServer(srv, opts)
	enroll(s)
	return s
}

func newServer(srv *http.Server, opts []Option) *Server {
	s := &Server{
		srv: srv,
		config: config{
			newHandshakes: serving.NewDefaultHandshakes,
			beginTime:     h1.BeginTime,
			checkTLS:      tlsread.Probe,
		},
		counters: counters.NewSet(counters.Cells(), counterCount),
	}
	s.counts = s.counters.Cells[0]
	for i, opt := range opts {
		if opt == nil {
			panic(fmt.Sprintf("httpadapter: Wrap was called with nil for option %d", i+1))
		}
		opt(&s.config)
	}
	s.mu.calls = make(map[*serveCall]struct{})
	s.noticeBypass()
	srv.RegisterOnShutdown(s.drains.Call)
	return s
}

// ListenAndServe listens on the TCP address in the http.Server's Addr (":http" if
// it is empty) with [percore.Listen] and serves. See [http.Server.ListenAndServe].
func (s *Server) ListenAndServe() error {
	l, err := s.listenOn(":http")
	if err != nil {
		return err
	}
	return s.Serve(l)
}

// ListenAndServeTLS listens on the TCP address in the http.Server's Addr (":https" if it is empty) with
// [percore.Listen] and serves TLS. See [http.Server.ListenAndServeTLS].
func (s *Server) ListenAndServeTLS(certFile, keyFile string) error {
	l, err := s.listenOn(":https")
	if err != nil {
		return err
	}
	defer l.Close()
	return s.ServeTLS(l, certFile, keyFile)
}

func (s *Server) listenOn(byDefault string) (net.Listener, error) {
	if s.isClosed() {
		return nil, http.ErrServerClosed
	}
	addr := s.srv.Addr
	if addr == "" {
		addr = byDefault
	}
	return percore.Listen("tcp", addr)
}

// Serve serves the connections of l, as [http.Server.Serve] does: it returns when l fails, or with
// [http.ErrServerClosed] after Shutdown or Close, and closes l. If l was closed in another way, its
// connections go on.
//
// Connections of type *percore.Conn are served here, even below a tls.NewListener around a
// *percore.Listener. net/http serves connections of other types, such as the wrappers of
// netutil.LimitListener and PROXY-protocol listeners; [Stats] counts them, and the first one of each
// Serve is logged. If l is a *percore.Listener, one goroutine per socket accepts. A nil l is an error.
func (s *Server) Serve(l net.Listener) error {
	if l == nil {
		return errNilListener
	}
	return s.serve(l, nil)
}

var errNilListener = errors.New("httpadapter: Serve was called with a nil net.Listener; " +
	"look at the error of the function that should have made it")

func errNilContext(method string) error {
	return errors.New("httpadapter: " + method + " was called with a nil context.Context: pass one")
}

// ServeTLS is Serve for TLS, with certificates as [http.Server.ServeTLS] takes them.
func (s *Server) ServeTLS(l net.Listener, certFile, keyFile string) error {
	if l == nil {
		return errNilListener
	}
	config, err := s.tlsConfig(certFile, keyFile)
	if err != nil {
		return err
	}
	return s.serve(l, config)
}

func (s *Server) serve(l net.Listener, config *tls.Config) error {
	s.installed.Do(s.install)
	if err := startServe(s.srv.Serve); err != nil {
		l.Close()
		return err
	}
	return s.newServeCall(l, config).run()
}

// Shutdown is [http.Server.Shutdown]: it closes listeners and idle connections, including parked ones,
// and waits for connections with a running request.
//
// There is one difference: connections that have not sent a byte yet are closed at once. net/http waits
// up to five seconds for them, and then closes them unanswered as well, with or without a request.
func (s *Server) Shutdown(ctx context.Context) error {
	if ctx == nil {
		return errNilContext("Shutdown")
	}
	calls := s.close()
	s.drains.Call()
	err := s.srv.Shutdown(ctx) // the context's, or a listener's, which is no reason not to wait
	for _, call := range calls {
		select {
		case <-call.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// Close is [http.Server.Close]: it closes listeners and connections, including parked ones, but not
// hijacked ones.
func (s *Server) Close() error {
	calls := s.close()
	err := s.srv.Close()
	for _, call := range calls {
		call.close()
	}
	return err
}

func (s *Server) close() []*serveCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	return s.callsLocked()
}

func (s *Server) callsLocked() []*serveCall { return slices.Collect(maps.Keys(s.mu.calls)) }

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.closed
}

// RegisterOnShutdown is [http.Server.RegisterOnShutdown].
func (s *Server) RegisterOnShutdown(f func()) {
	if f == nil { // net/http would crash in Shutdown
		panic("httpadapter: RegisterOnShutdown was called with a nil function")
	}
	s.srv.RegisterOnShutdown(f)
}

// SetKeepAlivesEnabled is [http.Server.SetKeepAlivesEnabled]. If v is false, it closes idle
// connections, including parked ones.
func (s *Server) SetKeepAlivesEnabled(v bool) {
	s.keepAlivesOff.Store(!v)
	s.srv.SetKeepAlivesEnabled(v)
	s.mu.Lock()
	calls := s.callsLocked()
	s.mu.Unlock()
	for _, call := range calls {
		if v {
			call.keepAlivesOff.Store(false)
			call.lookAgain()
		} else {
			call.endKeepAlives()
		}
	}
}

func (s *Server) install() {
	s.used.Store(true)
	counters.Enlist(servers, s, s.counters)
	s.keeps = canPark && !features.HTTPIsNet() && !monotime.InBubble()
	s.installAge()
	_, s.ownH2 = s.srv.TLSNextProto["h2"] // before net/http sets it up
	s.user = hooks{
		connState: s.srv.ConnState, connContext: s.srv.ConnContext, baseContext: s.srv.BaseContext, handler: s.srv.Handler,
	}
	s.srv.Handler = closingHandler{s}
	s.srv.ConnState = s.connState
	if s.user.connContext != nil {
		s.srv.ConnContext = s.connContext
	}
	if s.user.baseContext != nil {
		s.srv.BaseContext = s.baseContext
	}
}

// canReadTLS reports whether connections can wait above crypto/tls. If not it logs that.
func (s *Server) canReadTLS() bool {
	err := s.checkTLS()
	if err != nil {
		s.counts.Add(countUnsafe, 1)
		s.logf("httpadapter: net/http serves TLS, and idle connections keep their goroutines and buffers, because "+
			"crypto/tls of %s does not read in a way that percore relies on: %v", runtime.Version(), err)
	}
	return err == nil
}

func (s *Server) logf(format string, args ...any) {
	if s.srv.ErrorLog != nil {
		s.srv.ErrorLog.Printf(format, args...)
	} else {
		log.Printf(format, args...)
	}
}
