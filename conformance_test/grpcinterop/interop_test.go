package grpcinterop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(failing{grpclog.NewLoggerV2(discard{}, discard{}, discard{})})
	testnet.Main(m)
}

// failing is a logger for the interop client. When a case fails, the client would end the process
// through its logger: this one ends only the case.
type failing struct{ grpclog.LoggerV2 }

// caseFailed is the panic value of a failed case.
type caseFailed struct{ message string }

func (failing) Fatal(args ...any)                 { panic(caseFailed{fmt.Sprint(args...)}) }
func (failing) Fatalln(args ...any)               { panic(caseFailed{fmt.Sprintln(args...)}) }
func (failing) Fatalf(format string, args ...any) { panic(caseFailed{fmt.Sprintf(format, args...)}) }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// An interopCase is one of the cases of gRPC's interop test descriptions
// (doc/interop-test-descriptions.md in github.com/grpc/grpc). Cases that need cloud credentials are
// left out, and so is orca_oob, which needs a server built with gRPC's internals.
type interopCase struct {
	name string
	run  func(ctx context.Context, dial dialFunc)
}

// dialFunc makes a client for the server of the case. It ends the case if it fails.
type dialFunc func() *grpc.ClientConn

// service makes a case from a function that takes the test service's client.
func service(name string, do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) interopCase {
	return interopCase{name, func(ctx context.Context, dial dialFunc) {
		cc := dial()
		defer cc.Close()
		do(ctx, testgrpc.NewTestServiceClient(cc))
	}}
}

// plain makes a case from a function without call options.
func plain(name string, do func(context.Context, testgrpc.TestServiceClient)) interopCase {
	return service(name, func(ctx context.Context, client testgrpc.TestServiceClient, _ ...grpc.CallOption) { do(ctx, client) })
}

var cases = []interopCase{
	service("empty_unary", interop.DoEmptyUnaryCall),
	service("large_unary", interop.DoLargeUnaryCall),
	service("client_streaming", interop.DoClientStreaming),
	service("server_streaming", interop.DoServerStreaming),
	service("ping_pong", interop.DoPingPong),
	service("empty_stream", interop.DoEmptyStream),
	service("timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer),
	service("cancel_after_begin", cancelAfterBegin),
	service("cancel_after_first_response", interop.DoCancelAfterFirstResponse),
	service("custom_metadata", interop.DoCustomMetadata),
	service("status_code_and_message", interop.DoStatusCodeAndMessage),
	service("special_status_message", interop.DoSpecialStatusMessage),
	plain("pick_first_unary", interop.DoPickFirstUnary),
	plain("orca_per_rpc", interop.DoORCAPerRPCTest),
	{"unimplemented_service", func(ctx context.Context, dial dialFunc) {
		cc := dial()
		defer cc.Close()
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
	}},
	{"unimplemented_method", func(ctx context.Context, dial dialFunc) {
		cc := dial()
		defer cc.Close()
		interop.DoUnimplementedMethod(ctx, cc)
	}},
	{"rpc_soak", func(ctx context.Context, dial dialFunc) {
		cc := dial()
		defer cc.Close()
		soak(ctx, func() (*grpc.ClientConn, func()) { return cc, func() {} })
	}},
	{"channel_soak", func(ctx context.Context, dial dialFunc) {
		soak(ctx, func() (*grpc.ClientConn, func()) {
			cc := dial()
			return cc, func() { cc.Close() }
		})
	}},
}

// cancelAfterBegin cancels a call, and then half-closes the stream and waits for the answer. The
// server answers the half-close, and that may arrive before gRPC has noticed the cancellation. Then
// it tries again.
func cancelAfterBegin(ctx context.Context, client testgrpc.TestServiceClient, options ...grpc.CallOption) {
	for range 9 {
		if attempt(func() { interop.DoCancelAfterBegin(ctx, client, options...) }) == nil {
			return
		}
	}
	interop.DoCancelAfterBegin(ctx, client, options...)
}

// soak makes large calls on the clients that it is given. Slow calls are not a failure.
func soak(ctx context.Context, channel func() (*grpc.ClientConn, func())) {
	interop.DoSoakTest(ctx, interop.SoakTestConfig{
		RequestSize:                      271828, // as in the descriptions
		ResponseSize:                     314159,
		PerIterationMaxAcceptableLatency: testnet.HangTimeout,
		OverallTimeout:                   testnet.HangTimeout,
		NumWorkers:                       2,
		Iterations:                       10,
		ChannelForTest:                   channel,
	})
}

// nameServer makes the server return its name if a call requests it. pick_first_unary does, but
// grpc-go's interop server doesn't support it.
func nameServer(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(ctx, req)
	if req, ok := req.(*testgrpc.SimpleRequest); ok && req.FillServerId && err == nil {
		resp.(*testgrpc.SimpleResponse).ServerId = "the only one"
	}
	return resp, err
}

// serviceConfigs configure the client of a case about load balancing.
var serviceConfigs = map[string]string{
	"orca_per_rpc": `{"loadBalancingConfig": [{"test_backend_metrics_load_balancer":{}}]}`,
}

// A side is how one end runs. A server uses the server's part, a client the client's part.
type side struct {
	name   string
	listen testnet.ListenFunc
	serve  func(*grpc.Server, net.Listener) error
	own    bool // the end is grpcadapter.NewServer's or NewClient's; serve and client don't count
	client []grpc.DialOption

	// These are for a server that is an http.Handler; nil for others. handler nil: grpc.Server.ServeHTTP.
	wrap    func(*http.Server) testnet.WebServer
	handler func(server) (http.Handler, error)
}

var sides = []side{
	{name: "net", listen: net.Listen, serve: (*grpc.Server).Serve},
	{
		name: "percore", listen: percore.Listen, serve: (*grpc.Server).Serve,
		client: []grpc.DialOption{grpc.WithContextDialer(new(percore.Dialer).DialTarget)},
	},
}

// ownServer is percore's gRPC server, and ownClient the ClientConn of percore's gRPC client.
var (
	ownServer = side{name: "NewServer", listen: percore.Listen, own: true}
	ownClient = side{name: "NewClient", own: true}
)

// pastServer is a grpc.Server past grpc-go's transport.
var pastServer = side{
	name: "Wrap", listen: percore.Listen,
	serve: func(s *grpc.Server, ln net.Listener) error {
		w := grpcadapter.Wrap(s)
		if err := w.Refusal(); err != nil {
			ln.Close()
			return err
		}
		return w.Serve(ln)
	},
}

// server is what all gRPC servers have.
type server interface {
	grpc.ServiceRegistrar
	Serve(net.Listener) error
	Stop()
}

// adapted is a grpc.Server that is served in another way.
type adapted struct {
	*grpc.Server
	serve func(*grpc.Server, net.Listener) error
}

// Serve calls serve.
func (a adapted) Serve(l net.Listener) error { return a.serve(a.Server, l) }

// newServer makes an interop server.
func (s side) newServer(creds credentials.TransportCredentials) server {
	if s.own {
		return grpcadapter.NewServer(grpcadapter.Creds(creds), grpcadapter.ChainUnaryInterceptor(nameServer))
	}
	return adapted{grpc.NewServer(grpc.Creds(creds), orca.CallMetricsServerOption(nil), grpc.ChainUnaryInterceptor(nameServer)), s.serve}
}

// dial makes a client. config is its service config; "": none. The own client has none.
func (s side) dial(target string, creds credentials.TransportCredentials, config string) (*grpc.ClientConn, error) {
	if s.own {
		client, err := grpcadapter.NewClient(target, grpcadapter.WithTransportCredentials(creds))
		if err != nil {
			return nil, err
		}
		return client.ClientConn(), nil
	}
	options := append(slices.Clone(s.client), grpc.WithTransportCredentials(creds))
	if config != "" {
		options = append(options, grpc.WithDefaultServiceConfig(config))
	}
	return grpc.NewClient(target, options...)
}

// TestInterop runs every case over every transport for every server and client. The cases with net
// on both sides validate the setup.
func TestInterop(t *testing.T) {
	for _, server := range append(slices.Clone(sides), ownServer, pastServer) {
		for _, client := range append(slices.Clone(sides), ownClient) {
			for _, transport := range []struct {
				name string
				kind testnet.Kind
				tls  bool
			}{
				{"tcp", testnet.TCP4, false},
				{"unix", testnet.Unix, false},
				{"TLS", testnet.TCP4, true},
			} {
				t.Run("server="+server.name+"/client="+client.name+"/"+transport.name, func(t *testing.T) {
					testnet.NoLeaks(t)
					runCases(t, server, client, transport.kind, transport.tls)
				})
			}
		}
	}
}

func onNet(srv *http.Server) testnet.WebServer { return srv }
func onPercore(srv *http.Server) testnet.WebServer {
	return httpadapter.Wrap(srv)
}

// handlers are servers that run as the handler of an http.Server (grpc.Server.ServeHTTP), for gRPC on
// the port of a web server.
var handlers = []side{
	{name: "handler,net", listen: net.Listen, wrap: onNet},
	{name: "handler,percore", listen: percore.Listen, wrap: onPercore},
}

// ports are percore's gRPC servers on the port of a web server: below net/http's types, and as a handler
// of net/http's server.
var ports = []side{
	{name: "NewServer,percore", listen: percore.Listen, own: true, wrap: onPercore, handler: ownPort},
	{name: "NewServer,net", listen: net.Listen, own: true, wrap: onNet, handler: ownPort},
	{name: "Wrap,percore", listen: percore.Listen, wrap: onPercore, handler: pastPort},
	{name: "Wrap,net", listen: net.Listen, wrap: onNet, handler: pastPort},
}

func ownPort(s server) (http.Handler, error) {
	return s.(*grpcadapter.Server).Handler(http.NotFoundHandler()), nil
}

func pastPort(s server) (http.Handler, error) {
	w := grpcadapter.Wrap(s.(adapted).Server)
	return w.Handler(http.NotFoundHandler()), w.Refusal()
}

// TestInteropHandler runs every case against servers that are handlers of HTTP/2.
func TestInteropHandler(t *testing.T) {
	for _, server := range append(slices.Clone(handlers), ports...) {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("server=%s/TLS=%t", server.name, secure), func(t *testing.T) {
				testnet.NoLeaks(t)
				runCases(t, server, sides[0], testnet.TCP4, secure)
			})
		}
	}
}

// serveHandler serves until the test ends.
func serveHandler(t *testing.T, s side, ln net.Listener, server server, config *tls.Config) {
	handler, ok := server.(http.Handler)
	if s.handler != nil {
		var err error
		if handler, err = s.handler(server); err != nil {
			t.Fatal(err)
		}
	} else if !ok {
		t.Fatalf("a %T is no handler", server)
	}
	srv := &http.Server{Handler: handler, Protocols: new(http.Protocols), TLSConfig: config}
	srv.Protocols.SetHTTP2(true)
	srv.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(server.Stop)
	testnet.ServeWeb(t, s.wrap(srv), ln, config != nil)
}

// runCases starts an interop server and runs all cases against it.
func runCases(t *testing.T, serverSide, clientSide side, kind testnet.Kind, secure bool) {
	serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
	var handlerConfig *tls.Config // an http.Server's TLS is its own
	if secure {
		serverConfig, clientConfig := testnet.TLS(t)
		clientCredentials = credentials.NewTLS(clientConfig)
		if serverSide.wrap != nil {
			handlerConfig = serverConfig
		} else {
			serverCredentials = credentials.NewTLS(serverConfig)
		}
	}
	ln := testnet.Listen(t, serverSide.listen, kind)
	server := serverSide.newServer(serverCredentials)
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	if serverSide.wrap != nil {
		serveHandler(t, serverSide, ln, server, handlerConfig)
	} else {
		serveGRPC(t, server, ln)
	}
	for _, c := range cases {
		if c.name == "cancel_after_begin" && clientSide.own {
			c = service(c.name, interop.DoCancelAfterBegin) // it needs no second try
		}
		if serverSide.supports(c) && clientSide.supports(c) {
			t.Run(c.name, func(t *testing.T) {
				if err := runCase(t.Context(), c, clientSide, target(ln.Addr()), clientCredentials); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// supports reports whether an end can pass a case: orca's interceptor is a grpc.ServerOption that
// can't be looked into, and at the client it has a policy of load balancing.
func (s side) supports(c interopCase) bool { return !s.own || c.name != "orca_per_rpc" }

// serveGRPC serves until the test ends.
func serveGRPC(t *testing.T, server server, ln net.Listener) {
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := testnet.Receive(t, "Serve ending", served); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	})
}

// runCase returns the case's error, if it fails.
func runCase(ctx context.Context, c interopCase, client side, target string, creds credentials.TransportCredentials) error {
	ctx, cancel := context.WithTimeout(ctx, testnet.HangTimeout)
	defer cancel()
	return attempt(func() {
		c.run(ctx, func() *grpc.ClientConn {
			cc, err := client.dial(target, creds, serviceConfigs[c.name])
			if err != nil {
				panic(caseFailed{fmt.Sprint("NewClient: ", err)})
			}
			return cc
		})
	})
}

// attempt runs f, a function of the interop client, and returns its error if it fails.
func attempt(f func()) (err error) {
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case caseFailed:
			err = errors.New(failure.message)
		default:
			panic(failure)
		}
	}()
	f()
	return nil
}

// target returns gRPC's name of an address.
func target(addr net.Addr) string {
	if addr.Network() == "unix" {
		return "unix:" + addr.String()
	}
	return "passthrough:///" + addr.String()
}

// TestFailedCaseIsNoticed runs a case against a server without the service.
func TestFailedCaseIsNoticed(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := grpc.NewServer()
	go server.Serve(ln)
	defer server.Stop()
	if err := runCase(t.Context(), cases[0], sides[0], target(ln.Addr()), insecure.NewCredentials()); err == nil {
		t.Error("got no failure, want one")
	}
}
