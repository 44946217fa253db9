package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/grpclog"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/innards"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/internal/shared/drain"
)

var logger = grpclog.Component("grpcadapter")

type wrapping struct {
	// probe returns why servers can't be served past grpc-go's transport, or the keys that their
	// contexts need. Tests replace it, and logf.
	probe  func() (*innards.Keys, error)
	logf   func(format string, args ...any)
	hidden bool // the proof's own: its calls are not counted

	added rpc.Config // what the options of Wrap set, and nothing else
}

// A WrappedServer serves the calls of a grpc.Server on percore. Make it with [Wrap]. All methods are
// safe for concurrent use.
type WrappedServer struct {
	// immutable
	srv *grpc.Server
	wrapping

	// written by decide, before anything reads it
	inner       *rpc.Server // nil: grpc-go's transport serves
	innards     *innards.Server
	userTimeout userTimeout // of connections
	refusal     error
	decision    sync.Once
	adoption    sync.Once // of the services, in inner
	hosting     sync.Once // see host

	drains drain.Hooks

	used atomic.Bool // one of the methods that serve was called

	mu sync.Mutex

	// guarded by mu
	door    *door // the open one
	serving int   // calls of Serve that use it, and host
}

// Wrap returns a server that serves srv's calls past grpc-go's transport, with package h2: with the
// services, options and handlers of srv, with less CPU time, and without a goroutine or a buffer for
// waiting connections. docs/DIFFERENCES.md lists what differs. Configure srv as usual, and register
// services with it before the first Serve. Wrap a server only once. The options may be [LimitWork]
// and [DetachInterceptors], which grpc-go doesn't have. Wrap panics if srv is nil, and for any other
// option, which belongs in grpc.NewServer.
//
// Wrap is experimental, and stays so after v1.0: a grpc.Server keeps its services and options in
// private fields. The first Serve of the process proves that this package knows the grpc-go that it
// runs with: it must understand all fields of a grpc.Server and its options, and calls in memory, to
// grpc-go's transport and past it, must have the same results. That takes 20 to 60 ms. If the proof
// fails, or the server has an option that can't be obeyed here, grpc-go's transport serves, and the
// options of Wrap have no effect. A line in gRPC's log says why, and that LimitWork has no effect if
// it was given; so does [WrappedServer.Refusal]. [NewServer] needs only public names.
//
// Where grpc-go's transport serves, percore's connections wait without its read buffer of 32 KiB,
// except over TLS, and their TCP_USER_TIMEOUT is 20 seconds, whatever keep-alive parameters srv has.
// By itself, grpc-go does that only for package net's connections.
//
// Wrap refuses the options RPCCompressor, RPCDecompressor, WaitForHandlers and MaxHeaderListSize(0);
// xDS credentials; binary logs and xDS filters, which have no public option; grpc.EnableTracing; and
// GRPC_GO_SERVER_GOROUTINE_LABELS and GRPC_BINARY_LOG_FILTER in the environment. It refuses
// everything while channelz is on, as in programs that import
// google.golang.org/grpc/channelz/service, because channelz would see no calls.
//
// If srv's own Serve is called instead, Wrap has no effect; a line in gRPC's log says so. srv.Stop
// and srv.GracefulStop also stop the WrappedServer.
func Wrap(srv *grpc.Server, opts ...Option) *WrappedServer {
	return wrap(srv, func(w *wrapping) { w.add(opts) })
}

// add takes the options of Wrap.
func (w *wrapping) add(opts []Option) {
	refuseNilOption("Wrap's options", opts)
	for i, opt := range opts {
		added, ok := opt.(addedOption)
		if !ok {
			panic(fmt.Sprintf("grpcadapter: option %d of Wrap is one of grpc-go's: give that to grpc.NewServer", i+1))
		}
		added(&w.added)
	}
}

// wrap is Wrap for the proof and for tests, which change how a server is wrapped.
func wrap(srv *grpc.Server, changes ...func(*wrapping)) *WrappedServer {
	refuseNil(srv == nil, "Wrap", "*grpc.Server", "pass the result of grpc.NewServer")
	s := &WrappedServer{srv: srv, wrapping: wrapping{probe: proven, logf: logger.Errorf}}
	for _, change := range changes {
		change(&s.wrapping)
	}
	if !s.hidden {
		s.noticeBypass(bypassCheckFirst)
	}
	return s
}

// Serve serves the connections of lis, as grpc.Server.Serve does. When lis fails it returns the
// error of lis. After Stop or GracefulStop it returns nil once these have ended, or
// grpc.ErrServerStopped if it was called after them. It closes lis. It may be called for several
// listeners. As with srv.Serve, services can't be registered afterwards.
//
// If lis has several sockets (see percore.Listener.PerLoop), one goroutine for each accepts.
func (s *WrappedServer) Serve(lis net.Listener) error {
	switch {
	case s == nil || s.srv == nil:
		return errors.New("grpcadapter: Serve was called for a WrappedServer that Wrap has not made")
	case isNilListener(lis):
		return errNilListener
	}
	if !s.past() {
		return serveByGRPC(s.srv, lis)
	}
	d := s.enter()
	if d == nil {
		lis.Close()
		return grpc.ErrServerStopped
	}
	err := serveInner(s.inner, lis, s.userTimeout)
	s.leave()
	if err == nil {
		<-d.ended
	}
	return err
}

// Shutdown stops the server gracefully, as [Server.Shutdown] does.
func (s *WrappedServer) Shutdown(ctx context.Context) error { return shutdown(ctx, s.GracefulStop) }

// Close is Stop. It returns nil.
func (s *WrappedServer) Close() error {
	s.Stop()
	return nil
}

// Stop is srv.Stop.
func (s *WrappedServer) Stop() { s.srv.Stop() }

// GracefulStop is srv.GracefulStop, and calls the functions of RegisterOnDrain.
func (s *WrappedServer) GracefulStop() {
	s.drains.Call()
	s.srv.GracefulStop()
}

// RegisterOnDrain registers a function as [Server.RegisterOnDrain] does. Where grpc-go's transport
// serves, the grpc.Server's own GracefulStop doesn't call the functions, so call GracefulStop of the
// WrappedServer.
func (s *WrappedServer) RegisterOnDrain(f func()) {
	if s == nil || s.srv == nil {
		panic("grpcadapter: RegisterOnDrain was called for a WrappedServer that Wrap has not made")
	}
	refuseNil(f == nil, "RegisterOnDrain", "function", "leave the call out")
	s.drains.Add(f)
}

// HandOver is for package handover: see [Server.HandOver]. Where grpc-go's transport serves, clients
// are told only by GracefulStop.
func (s *WrappedServer) HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error {
	s.drains.Call()
	if s.Refusal() == nil {
		s.inner.Drain()
	}
	return nil
}

// Refusal returns why the server is not served past grpc-go's transport, or nil if it is. If nothing
// has been served yet, it finds that out now.
func (s *WrappedServer) Refusal() error {
	s.decision.Do(s.decide)
	return s.refusal
}

// Stats returns the counters of calls served past grpc-go's transport, as [Server.Stats] does.
func (s *WrappedServer) Stats() Stats {
	if s.Refusal() != nil {
		return Stats{}
	}
	return Stats(s.inner.Stats())
}

// The only way to notice that a program calls the grpc.Server's own Serve is to look at that server
// a few times: grpc-go calls none of this package's code there. Programs serve soon after Wrap,
// within seconds at most.
const (
	bypassCheckFirst = 500 * time.Millisecond // and twice as long each time
	bypassCheckLast  = time.Minute
)

// noticeBypass logs that the grpc.Server is served without the WrappedServer, if it finds that after d.
func (s *WrappedServer) noticeBypass(d time.Duration) {
	time.AfterFunc(d, func() {
		switch {
		case s.used.Load():
		case innards.Served(s.srv):
			s.logf("grpcadapter: Wrap was called for a grpc.Server, and then the grpc.Server's own Serve: " +
				"Wrap has no effect. Call Serve of what it has returned")
		case d < bypassCheckLast:
			s.noticeBypass(2 * d)
		}
	})
}

// past begins to serve, and reports whether that is past grpc-go's transport.
func (s *WrappedServer) past() bool {
	s.used.Store(true)
	return s.Refusal() == nil
}

// decide finds out whether calls can be served past grpc-go's transport, and says so in the log if not.
func (s *WrappedServer) decide() {
	if s.refusal = s.open(); s.refusal == nil {
		return
	}
	s.inner = nil
	if s.added.Work != nil {
		s.refusal = fmt.Errorf("%w; the limit of LimitWork does not hold", s.refusal)
	}
	s.logf("grpcadapter: grpc-go's own transport serves: %v", s.refusal)
}

// open makes the inner server, which serves the calls.
func (s *WrappedServer) open() (err error) {
	defer func() {
		if p := recover(); p != nil { // a surprise must never be worse than grpc-go's transport
			err = fmt.Errorf("grpc-go %s: %v", grpc.Version, p)
		}
	}()
	keys, err := s.probe()
	if err != nil {
		return fmt.Errorf("grpc-go %s: %w", grpc.Version, err)
	}
	return s.openWith(keys)
}

func (s *WrappedServer) openWith(keys *innards.Keys) error {
	s.innards = innards.Look(s.srv)
	config, err := s.innards.Config()
	if err != nil {
		return err
	}
	if config.Pool == grpcPool { // the default
		config.Pool = bufferPool{}
	}
	keys.Imitate(s.srv, &config)
	config.Unused, config.Hidden = s.closeUnused, s.hidden
	config.Work, config.DetachInterceptors, config.Drains = s.added.Work, s.added.DetachInterceptors, &s.drains
	s.userTimeout = userTimeoutOf(config.Keepalive.Time, config.Keepalive.Timeout)
	s.inner = rpc.New(config)
	return nil
}

// enter returns the open door, or nil if the server has been stopped.
func (s *WrappedServer) enter() *door {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.door == nil {
		d := openDoor(s.srv, s.inner, s.innards)
		if d == nil {
			return nil
		}
		s.door = d
		s.adoption.Do(func() { s.innards.Services(s.inner.Adopt) }) // which don't change any more
	}
	s.serving++
	return s.door
}

func (s *WrappedServer) leave() {
	s.mu.Lock()
	s.serving--
	s.mu.Unlock()
	s.closeUnused()
}

// closeUnused closes the door if there is neither a listener nor a connection behind it.
func (s *WrappedServer) closeUnused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.door != nil && s.serving == 0 && s.inner.Unused() {
		s.door.close(unused)
		s.door = nil
	}
}
