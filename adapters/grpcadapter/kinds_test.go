package grpcadapter

import (
	"context"
	"net"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A testServer is a server of any kind.
type testServer interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	Stop()
	GracefulStop()
}

// An ownServer is a server of this package's kinds.
type ownServer interface {
	testServer
	Stats() Stats
	Shutdown(context.Context) error
	Close() error
	RegisterOnDrain(f func())
	HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error
	Handler(http.Handler) http.Handler
	ServeHTTP(http.ResponseWriter, *http.Request)
}

// A serverKind is a kind of servers.
type serverKind struct {
	name   string
	listen testnet.ListenFunc
	make   func(theirs []grpc.ServerOption, ours []Option) testServer
}

// serverKinds are all kinds. The first is right, and the others are ownServers.
var serverKinds = []serverKind{
	{"grpc-go", net.Listen, func(theirs []grpc.ServerOption, _ []Option) testServer {
		return grpc.NewServer(theirs...)
	}},
	{"NewServer", percore.Listen, func(_ []grpc.ServerOption, ours []Option) testServer { return NewServer(ours...) }},
	{"Wrap", percore.Listen, func(theirs []grpc.ServerOption, ours []Option) testServer {
		return newWrapped(theirs, slices.DeleteFunc(slices.Clone(ours), func(o Option) bool {
			_, added := o.(addedOption)
			return !added
		})...)
	}},
}

// fallbackKind is what Wrap falls back to, and directKind is Wrap for a program that stops the
// grpc.Server.
var (
	fallbackKind = serverKind{"Wrap, refused", percore.Listen, func(theirs []grpc.ServerOption, _ []Option) testServer {
		srv := grpc.NewServer(theirs...)
		return servedBy{srv, func(lis net.Listener) error { return serveByGRPC(srv, lis) }}
	}}
	directKind = serverKind{"Wrap, stopped directly", percore.Listen, func(theirs []grpc.ServerOption, _ []Option) testServer {
		srv := grpc.NewServer(theirs...)
		return servedBy{srv, func(lis net.Listener) error { return wrapFast(srv).Serve(lis) }}
	}}
)

// servedBy is a grpc.Server that is served in another way.
type servedBy struct {
	*grpc.Server
	serve func(net.Listener) error
}

func (s servedBy) Serve(lis net.Listener) error { return s.serve(lis) }

// makeOwn makes an ownServer.
func (k serverKind) makeOwn(theirs []grpc.ServerOption, ours []Option) ownServer {
	return k.make(theirs, ours).(ownServer)
}

// makeWatched makes an ownServer with stats handlers.
func (k serverKind) makeWatched(handlers ...stats.Handler) ownServer {
	var theirs []grpc.ServerOption
	var ours []Option
	for _, h := range handlers {
		theirs, ours = append(theirs, grpc.StatsHandler(h)), append(ours, StatsHandler(h))
	}
	return k.makeOwn(theirs, ours)
}

// A serving is a listener whose connections are served until the test ends.
type serving struct {
	net.Listener
	name string // of the server's kind
}

// serveKinds makes a server of each kind.
func serveKinds(t testing.TB, theirs []grpc.ServerOption, ours []Option, services ...*grpc.ServiceDesc) (all []serving) {
	for _, kind := range serverKinds {
		lis := testnet.Listen(t, kind.listen, testnet.TCP4)
		serveOn(t, lis, kind.make(theirs, ours), services...)
		all = append(all, serving{lis, kind.name})
	}
	return all
}

// serveOn serves lis until the test ends, and checks that Serve then returns nil.
func serveOn(t testing.TB, lis net.Listener, srv testServer, services ...*grpc.ServiceDesc) {
	for _, desc := range services {
		srv.RegisterService(desc, nil)
	}
	serveUntil(t, srv.Stop, func() error { return srv.Serve(lis) })
}

// wrapped is a grpc.Server that is served past grpc-go's transport.
type wrapped struct {
	*WrappedServer
	grpc.ServiceRegistrar
}

func newWrapped(theirs []grpc.ServerOption, ours ...Option) wrapped {
	srv := grpc.NewServer(theirs...)
	return wrapped{wrapFast(srv, ours...), srv}
}

// serveWrapped serves echo until the test ends.
func serveWrapped(t testing.TB, lis net.Listener, theirs ...grpc.ServerOption) wrapped {
	t.Helper()
	w := newWrapped(theirs)
	serveOn(t, lis, w, &echo)
	return w
}

// wrapFast wraps a server whose calls are certainly served past grpc-go's transport. It panics if that
// is refused.
func wrapFast(srv *grpc.Server, opts ...Option) *WrappedServer {
	w := Wrap(srv, opts...)
	if err := w.Refusal(); err != nil {
		panic(err)
	}
	return w
}
