package grpcadapter

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/adapters/h2"
)

// A Server serves gRPC with package h2 instead of grpc-go's transport. Generated code registers
// services with it, as with a *grpc.Server, and handlers, interceptors, codecs, compressors,
// metadata, status, peer and credentials stay as they are:
//
//	srv := grpcadapter.NewServer(grpcadapter.ChainUnaryInterceptor(auth))
//	pb.RegisterEchoServer(srv, new(echo))
//	lis, err := percore.Listen("tcp", ":50051")
//	...
//	err = srv.Serve(lis)
//
// It takes connections from any listener. percore's connections hold no goroutine and no buffer
// while they wait, in cleartext and over TLS. All methods are safe for concurrent use.
type Server struct {
	rpc         *rpc.Server
	userTimeout userTimeout // of connections
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer makes a server without services. Its options have the same names and meanings as in
// grpc-go, but a grpc.ServerOption can't be passed, so no option is ever ignored.
func NewServer(opts ...Option) *Server {
	config := rpc.DefaultConfig()
	config.Pool = bufferPool{}
	refuseNilOption("NewServer's options", opts)
	for _, opt := range opts {
		opt.applyToServer(&config)
	}
	return &Server{rpc.New(config), userTimeoutOf(config.Keepalive.Time, config.Keepalive.Timeout)}
}

// RegisterService implements [grpc.ServiceRegistrar]. Generated code calls it, before Serve. As with
// a grpc.Server, an impl of the wrong type, a service that is already registered or a call after
// Serve ends the program, with a line in gRPC's log.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	s.check("RegisterService")
	refuseNil(desc == nil, "RegisterService", "*grpc.ServiceDesc", "generated code has one for each service")
	s.rpc.Register(desc, impl)
}

// check panics in the name of a method if the server was not made by NewServer.
func (s *Server) check(method string) {
	if s == nil || s.rpc == nil {
		panic("grpcadapter: " + method + " was called for a Server that NewServer has not made")
	}
}

// GetServiceInfo returns the registered services by their names.
func (s *Server) GetServiceInfo() map[string]grpc.ServiceInfo { return s.rpc.ServiceInfo() }

// Serve accepts connections from lis and serves them, until lis fails or the server is stopped. It
// closes lis. After Stop or GracefulStop it returns nil once these have ended, or
// grpc.ErrServerStopped if it was called after them; otherwise it returns the error of lis. It may
// be called for several listeners.
//
// If lis has several sockets (see percore.Listener.PerLoop), one goroutine for each accepts.
func (s *Server) Serve(lis net.Listener) error {
	switch {
	case s == nil || s.rpc == nil:
		return errors.New("grpcadapter: Serve was called for a Server that NewServer has not made")
	case isNilListener(lis):
		return errNilListener
	}
	return serveInner(s.rpc, lis, s.userTimeout)
}

// Shutdown is GracefulStop with a context: it returns nil when the last call has ended, or ctx's
// error when ctx ends first, as http.Server.Shutdown does. The remaining calls then go on, and Stop
// ends them.
func (s *Server) Shutdown(ctx context.Context) error { return shutdown(ctx, s.GracefulStop) }

// shutdown calls stop, which waits for calls, on a goroutine of its own, and returns when stop has
// returned or ctx has ended.
func shutdown(ctx context.Context, stop func()) error {
	if ctx == nil {
		return errors.New("grpcadapter: Shutdown was called with a nil context: pass one that ends when it has to")
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close is Stop. It returns nil.
func (s *Server) Close() error {
	s.Stop()
	return nil
}

// Stop closes the listeners and all connections. The contexts of calls end. Stop waits for their
// handlers only if the server has the option [WaitForHandlers].
func (s *Server) Stop() { s.rpc.Stop() }

// GracefulStop closes the listeners, tells the clients to make no more calls, and waits for the open
// ones. Stop ends these, even while GracefulStop waits.
func (s *Server) GracefulStop() { s.rpc.GracefulStop() }

// RegisterOnDrain registers a function that is called, on a goroutine of its own, when GracefulStop,
// Shutdown or HandOver is called for the first time, or at once if one already was. It is for calls
// that wait: close their [Answer]s, for example with Unavailable, so that the clients come back
// elsewhere, or GracefulStop waits for them.
func (s *Server) RegisterOnDrain(f func()) {
	s.check("RegisterOnDrain")
	refuseNil(f == nil, "RegisterOnDrain", "function", "leave the call out")
	s.rpc.OnDrain(f)
}

// HandOver is for package handover: the listener goes to another process, and the clients are told
// at once to make their next calls there (GOAWAY). No connection moves, so give is not called.
// HandOver returns nil without waiting for open calls; GracefulStop waits for them. Connections of
// the Server's other listeners are drained as well.
func (s *Server) HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error {
	s.rpc.Drain()
	return nil
}

// Stats are the counters of a [Server]. They are read one after the other, not at one instant.
type Stats struct {
	Calls    int                   // calls that are being served
	Detached int                   // of these, calls whose method has returned: see Detach
	Started  uint64                // calls whose serving has begun
	Ended    map[codes.Code]uint64 // of these, calls that have ended, by their code
	Refused  uint64                // of these, calls refused without a handler: no such method, a wrong header, a tap, no time left, LimitWork

	Received uint64 // messages from clients
	Sent     uint64 // messages to clients

	// HTTP2 has the counters of Serve's connections and their streams. An http.Server (see Handler)
	// counts its own.
	HTTP2 h2.Stats
}

// Stats returns the counters of the server. A call that the client has given up, or whose connection
// has ended, counts as Canceled, and a call whose deadline has passed as DeadlineExceeded, whatever
// its handler returns. Other calls count by the status that was sent. Codes that gRPC doesn't have
// count as Unknown.
func (s *Server) Stats() Stats { return Stats(s.rpc.Stats()) }

// SetSendCompressor is grpc.SetSendCompressor for handlers of a [Server]. On others it calls that.
func SetSendCompressor(ctx context.Context, name string) error {
	if ctx == nil {
		return errNilContext
	}
	if t, ok := grpc.ServerTransportStreamFromContext(ctx).(*rpc.TransportStream); ok {
		return t.SetCompressor(name)
	}
	return grpc.SetSendCompressor(ctx, name)
}

// ClientSupportedCompressors is grpc.ClientSupportedCompressors for handlers of a [Server]. On
// others it calls that.
func ClientSupportedCompressors(ctx context.Context) ([]string, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	if t, ok := grpc.ServerTransportStreamFromContext(ctx).(*rpc.TransportStream); ok {
		return t.Compressors(), nil
	}
	return grpc.ClientSupportedCompressors(ctx)
}
