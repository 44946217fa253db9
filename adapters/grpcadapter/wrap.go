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
	// probe returns why servers can't be served past grpc-go's transport, or what their contexts need.
	// Tests replace it, and logf.
	probe  func() (*innards.Keys, error)
	logf   func(format string, args ...any)
	hidden bool // the proof's own: its calls are no figures of the process

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

// Wrap returns a server that serves srv's calls past grpc-go's transport, on package h2: with the
// services, options and handlers of srv, for less CPU time, and without a goroutine or a buffer for
// connections that wait. docs/DIFFERENCES.md lists what differs. srv is configured as usual, and
// services are registered with it before the first Serve. Wrap a server once. Options are those that
// grpc-go doesn't have, [LimitWork] and [DetachInterceptors]. It panics if srv is nil, and if there is
// another option, which belongs in grpc.NewServer.
//
// Wrap is experimental, and stays so after v1.0: a grpc.Server keeps its services and options to
// itself, in private fields. The first Serve of the process proves that this package knows the grpc-go
// that it runs with: all fields of a grpc.Server and its options are those that it understands, and
// calls that are made in memory, to grpc-go's transport and past it, have the same results. That takes
// 20 to 60 ms. If the proof fails, or the server has an option that can't be obeyed here, grpc-go's
// transport serves, and the options of Wrap do not hold. A line in gRPC's log says why, and that
// LimitWork does not hold if it was given; so does [WrappedServer.Refusal]. [NewServer] needs public
// names only.
//
// Where grpc-go's transport serves, connections of percore wait without its read buffer of 32 KiB,
// except over TLS, and their TCP_USER_TIMEOUT is 20 seconds, whatever keep-alive parameters srv has.
// It does that by itself for package net's connections only.
//
// These are refused: the options RPCCompressor, RPCDecompressor, WaitForHandlers and
// MaxHeaderListSize(0); credentials of xDS; binary logs and xDS filters, which have no public option;
// grpc.EnableTracing; GRPC_GO_SERVER_GOROUTINE_LABELS and GRPC_BINARY_LOG_FILTER in the environment. So
// is everything while channelz is on, as it is in programs that import
// google.golang.org/grpc/channelz/service, because it would see no calls.
//
// If srv's own Serve is called instead, Wrap has no effect; a line in gRPC's log says so. srv.Stop and
// srv.GracefulStop also end what the WrappedServer serves.
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

// Serve serves the connections of lis, as grpc.Server.Serve does: it returns when lis fails, with its
// error, or nil after Stop or GracefulStop when these have ended; grpc.ErrServerStopped if it was
// called later than they. It closes lis. It may be called for several listeners. As with srv.Serve, no
// services may be registered any more.
//
// A listener with several sockets (see percore.Listener.PerLoop) is accepted from by one goroutine for
// each.
func (s *WrappedServer) Serve(lis net.Listener) error {
	switch {
	case s == nil || s.srv == nil:
		return errors.New("grpcadapter: Serve was called for a WrappedServer that Wrap has not made")
	case isNilListener(lis):
		return errNilListener
	}
	s.used.Store(true)
	s.decision.Do(s.decide)
	if s.inner == nil {
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
// serves, the grpc.Server's own GracefulStop calls none, so call the WrappedServer's.
func (s *WrappedServer) RegisterOnDrain(f func()) {
	if s == nil || s.srv == nil {
		panic("grpcadapter: RegisterOnDrain was called for a WrappedServer that Wrap has not made")
	}
	refuseNil(f == nil, "RegisterOnDrain", "function", "leave the call out")
	s.drains.Add(f)
}

// HandOver is for package handover: see [Server.HandOver]. Clients whose connections grpc-go's transport
// serves are told by GracefulStop.
func (s *WrappedServer) HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error {
	s.drains.Call()
	if s.decision.Do(s.decide); s.inner != nil {
		s.inner.Drain()
	}
	return nil
}

// Refusal returns why the server is not served past grpc-go's transport, or nil if it is. It finds
// that out if nothing has been served yet.
func (s *WrappedServer) Refusal() error {
	s.decision.Do(s.decide)
	return s.refusal
}

// Stats returns the figures of what is served past grpc-go's transport, as [Server.Stats] does.
func (s *WrappedServer) Stats() Stats {
	s.decision.Do(s.decide)
	if s.inner == nil {
		return Stats{}
	}
	return Stats(s.inner.Stats())
}

// A program that calls the grpc.Server's own Serve is noticed by looking at that server a few times:
// grpc-go calls nothing of ours there. Programs serve soon after Wrap, within seconds at most.
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
	if config.Pool == grpcPool { // the default, which has no sizes between 32 KiB and 1 MiB
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
