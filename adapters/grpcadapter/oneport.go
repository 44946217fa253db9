package grpcadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/adapters/h2"
)

// Handler returns a handler for an http.Server that serves gRPC and HTTP on one port: requests over
// HTTP/2 whose content-type is gRPC's (application/grpc, application/grpc+proto and so on) are calls of
// s, and all others go to next.
//
//	srv := &http.Server{Handler: grpcServer.Handler(mux)}
//	err = httpadapter.Wrap(srv).Serve(lis)
//
// With httpadapter, calls don't pass through net/http: package h2 gives their streams to s, and a
// call costs as much as with [Server.Serve]. For that, http.Server.Handler must be this handler
// itself. Inside another handler, and where httpadapter doesn't serve HTTP/2, calls come through
// [Server.ServeHTTP], at about the cost of grpc-go's ServeHTTP. So nothing around the handler is
// skipped.
//
// # Settings
//
// The http.Server owns the connections, so its settings apply to them: TLS, MaxHeaderBytes,
// IdleTimeout, the limits, windows and PINGs of HTTP2Config, ConnState, ConnContext. The options
// [Creds], [ConnectionTimeout], [KeepaliveParams], [MaxConcurrentStreams], [MaxHeaderListSize],
// [InitialWindowSize] and [InitialConnWindowSize] have no effect on them. All other options of s do:
// interceptors, stats handlers, the tap, codecs, sizes of messages, and [KeepaliveEnforcementPolicy]
// on connections that have had a call.
//
// ReadTimeout and WriteTimeout limit calls only if they come through ServeHTTP, as requests, not
// through h2. With ServeHTTP, a call has the context of its request; otherwise it has a new one, so
// BaseContext and ConnContext have no effect on it. peer.FromContext has credentials.TLSInfo for TLS
// connections. A stats.Handler gets ConnBegin when a connection has its first call, and ConnEnd at
// its end; with ServeHTTP it gets both for each call, as from grpc-go. If a handler panics, its call
// ends and the panic is logged, as in net/http; in Serve a panic ends the program.
//
// To stop, shut down the http.Server: it sends clients away (GOAWAY) and waits for their calls, as
// it does in a handover. [Server.GracefulStop] refuses later calls with codes.Unavailable and waits
// for handlers; connections stay open. [Server.Stop] closes the connections that have had calls.
func (s *Server) Handler(next http.Handler) http.Handler {
	s.check("Handler")
	refuseNil(next == nil, "Handler", "http.Handler", "http.DefaultServeMux or http.NotFoundHandler() may be what you mean")
	return &streamPortHandler{portHandler{s, next}, s}
}

// Handler is [Server.Handler] for the calls of the grpc.Server, whose options have an effect, or
// none, in the same way. Stop and GracefulStop are srv.Stop and srv.GracefulStop; a goroutine waits
// for them from the first Serve of the http.Server on.
//
// If the server can't be served past grpc-go's transport (see [WrappedServer.Refusal]), calls go to the
// ServeHTTP of the grpc.Server.
//
// Register services before the http.Server serves.
func (s *WrappedServer) Handler(next http.Handler) http.Handler {
	refuseNil(next == nil, "Handler", "http.Handler", "http.DefaultServeMux or http.NotFoundHandler() may be what you mean")
	if !s.past() {
		return &portHandler{s.srv, next}
	}
	return &streamPortHandler{portHandler{s, next}, s}
}

// ServeHTTP serves a call as an http.Handler, for programs whose HTTP/2 connections belong to net/http
// and for handlers around it. It needs HTTP/2 and full-duplex bodies, which net/http has there. See
// [Server.Handler].
//
// When a deadline passes, the client gets the status only after the handler has returned; Serve
// sends it at once.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	checkHTTP(w, r)
	s.rpc.ServeHTTP(w, r)
}

// checkHTTP panics if an argument of ServeHTTP is nil.
func checkHTTP(w http.ResponseWriter, r *http.Request) {
	if w == nil || r == nil {
		panic("grpcadapter: ServeHTTP was called with a nil http.ResponseWriter or *http.Request")
	}
}

// ServeHTTP serves a call as an http.Handler, as [Server.ServeHTTP] does, or, if it can't be served
// past grpc-go's transport, as srv.ServeHTTP does.
func (s *WrappedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	checkHTTP(w, r)
	if !s.past() {
		s.srv.ServeHTTP(w, r)
		return
	}
	s.host()
	s.inner.ServeHTTP(w, r)
}

// shared returns the handler that serves the streams of an http.Server.
func (s *Server) shared() h2.Handler { return s.rpc.Shared() }

func (s *WrappedServer) shared() h2.Handler {
	s.host()
	return s.inner.Shared()
}

// host lets srv's Stop and GracefulStop reach the inner server for as long as the program runs,
// since there is no listener that could end.
func (s *WrappedServer) host() {
	s.hosting.Do(func() {
		if s.enter() == nil { // stopped already
			s.inner.Stop()
		}
	})
}

// portHandler gives gRPC to one handler, and the rest to another.
type portHandler struct {
	calls, next http.Handler
}

// streamPortHandler is a portHandler that also takes calls below net/http.
type streamPortHandler struct {
	portHandler
	below interface{ shared() h2.Handler }
}

// ServeHTTP implements [http.Handler].
func (p *portHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 2 && rpc.IsGRPC(r.Header.Get("Content-Type")) {
		p.calls.ServeHTTP(w, r)
		return
	}
	p.next.ServeHTTP(w, r)
}

// Streams implements httpadapter.StreamHandler.
func (p *streamPortHandler) Streams() (h h2.Handler, takes func(*h2.Request) bool) {
	return p.below.shared(), rpc.Takes
}
