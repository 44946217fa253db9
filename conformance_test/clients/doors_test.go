package clients

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// A door is a way into a server. serve serves l, over TLS if config is not nil, and returns what ends
// that and what serving returns.
type door struct {
	name   string
	listen testnet.ListenFunc
	serve  func(t *testing.T, l net.Listener, config *tls.Config) (stop func(), served <-chan error)
}

// The doors of gRPC and of HTTP/2. The first of each is the judge of the others.
var (
	grpcDoors = []door{
		{"grpc-go", net.Listen, serveGRPC(func(config *tls.Config) grpcServer { return grpc.NewServer(grpcOptions(config)...) })},
		{"NewServer", percore.Listen, serveGRPC(newServer)},
		{"Wrap", percore.Listen, serveWrapped},
		{"one port", percore.Listen, serveOnePort},
	}
	webDoors = []door{
		{"net/http", net.Listen, serveHTTP(site(), func(srv *http.Server) testnet.WebServer { return srv })},
		{"HTTP2()", percore.Listen, serveHTTP(site(), wrapHTTP2)},
	}
)

// Messages and metadata are larger than by default, and clients may ping every 50 ms.
const messageMax = 16 << 20

var pings = keepalive.EnforcementPolicy{MinTime: 50 * time.Millisecond, PermitWithoutStream: true}

type grpcServer interface {
	RegisterService(*grpc.ServiceDesc, any)
	Serve(net.Listener) error
	Stop()
}

func grpcOptions(config *tls.Config) []grpc.ServerOption {
	options := []grpc.ServerOption{grpc.MaxRecvMsgSize(messageMax), grpc.KeepaliveEnforcementPolicy(pings)}
	if config != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(config)))
	}
	return options
}

func newServer(config *tls.Config) grpcServer { return newOwnServer(config) }

func newOwnServer(config *tls.Config) *grpcadapter.Server {
	options := []grpcadapter.Option{grpcadapter.MaxRecvMsgSize(messageMax), grpcadapter.KeepaliveEnforcementPolicy(pings)}
	if config != nil {
		options = append(options, grpcadapter.Creds(credentials.NewTLS(config)))
	}
	return grpcadapter.NewServer(options...)
}

// serveGRPC is the serve of a gRPC server.
func serveGRPC(newServer func(*tls.Config) grpcServer) func(*testing.T, net.Listener, *tls.Config) (func(), <-chan error) {
	return func(t *testing.T, l net.Listener, config *tls.Config) (func(), <-chan error) {
		srv := newServer(config)
		srv.RegisterService(&service, nil)
		return srv.Stop, begin(func() error { return srv.Serve(l) })
	}
}

func serveWrapped(t *testing.T, l net.Listener, config *tls.Config) (func(), <-chan error) {
	srv := grpc.NewServer(grpcOptions(config)...)
	srv.RegisterService(&service, nil)
	wrapped := grpcadapter.Wrap(srv)
	if err := wrapped.Refusal(); err != nil {
		t.Fatal(err)
	}
	return wrapped.Stop, begin(func() error { return wrapped.Serve(l) })
}

// serveOnePort serves gRPC and HTTP on one port.
func serveOnePort(t *testing.T, l net.Listener, config *tls.Config) (func(), <-chan error) {
	srv := newOwnServer(nil)
	srv.RegisterService(&service, nil)
	return serveHTTP(srv.Handler(site()), wrapHTTP2)(t, l, config)
}

// serveHTTP is the serve of an http.Server.
func serveHTTP(handler http.Handler, wrap func(*http.Server) testnet.WebServer) func(*testing.T, net.Listener, *tls.Config) (func(), <-chan error) {
	return func(t *testing.T, l net.Listener, config *tls.Config) (func(), <-chan error) {
		srv := &http.Server{Handler: handler, TLSConfig: config, Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0)}
		srv.Protocols.SetHTTP1(true)
		srv.Protocols.SetHTTP2(true)
		srv.Protocols.SetUnencryptedHTTP2(true)
		server := wrap(srv)
		return func() { server.Close() }, begin(func() error {
			if config != nil {
				return server.ServeTLS(l, "", "")
			}
			return server.Serve(l)
		})
	}
}

func wrapHTTP2(srv *http.Server) testnet.WebServer { return httpadapter.Wrap(srv) }

// begin calls serve, and sends what it returns, other than that the server is closed.
func begin(serve func() error) <-chan error {
	served := make(chan error, 1)
	go func() {
		err := serve()
		if errors.Is(err, http.ErrServerClosed) || errors.Is(err, grpc.ErrServerStopped) {
			err = nil
		}
		served <- err
	}()
	return served
}
