package grpcinterop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/orca"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) {
	grpclog.SetLoggerV2(failing{grpclog.NewLoggerV2(discard{}, discard{}, discard{})})
	testnet.Main(m)
}

// failing is a logger for the interop client, which ends the process through
// its logger when a case goes wrong: here it ends the case.
type failing struct{ grpclog.LoggerV2 }

// caseFailed is what a failed case panics with.
type caseFailed struct{ message string }

func (failing) Fatal(args ...any)                 { panic(caseFailed{fmt.Sprint(args...)}) }
func (failing) Fatalln(args ...any)               { panic(caseFailed{fmt.Sprintln(args...)}) }
func (failing) Fatalf(format string, args ...any) { panic(caseFailed{fmt.Sprintf(format, args...)}) }

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// An interopCase is one of the cases of gRPC's interop test descriptions
// (doc/interop-test-descriptions.md in github.com/grpc/grpc). Left out are
// those that need credentials of a cloud, pick_first_unary, which needs a server
// that names itself, as grpc-go's does not, and orca_oob, which needs a server
// built with gRPC's internals.
type interopCase struct {
	name string
	run  func(ctx context.Context, cc *grpc.ClientConn)
}

// service makes a case of a function for the test service's client.
func service(name string, do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) interopCase {
	return interopCase{name, func(ctx context.Context, cc *grpc.ClientConn) { do(ctx, testgrpc.NewTestServiceClient(cc)) }}
}

var cases = []interopCase{
	service("empty_unary", interop.DoEmptyUnaryCall),
	service("large_unary", interop.DoLargeUnaryCall),
	service("client_streaming", interop.DoClientStreaming),
	service("server_streaming", interop.DoServerStreaming),
	service("ping_pong", interop.DoPingPong),
	service("empty_stream", interop.DoEmptyStream),
	service("timeout_on_sleeping_server", interop.DoTimeoutOnSleepingServer),
	service("cancel_after_begin", interop.DoCancelAfterBegin),
	service("cancel_after_first_response", interop.DoCancelAfterFirstResponse),
	service("custom_metadata", interop.DoCustomMetadata),
	service("status_code_and_message", interop.DoStatusCodeAndMessage),
	service("special_status_message", interop.DoSpecialStatusMessage),
	{"unimplemented_service", func(ctx context.Context, cc *grpc.ClientConn) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
	}},
	{"unimplemented_method", interop.DoUnimplementedMethod},
	{"orca_per_rpc", func(ctx context.Context, cc *grpc.ClientConn) {
		interop.DoORCAPerRPCTest(ctx, testgrpc.NewTestServiceClient(cc))
	}},
}

// serviceConfigs are what the client of a case is told about load balancing.
var serviceConfigs = map[string]string{
	"orca_per_rpc": `{"loadBalancingConfig": [{"test_backend_metrics_load_balancer":{}}]}`,
}

// TestInterop runs every case over every transport, with the server on net,
// which validates the set-up, and on percore.
func TestInterop(t *testing.T) {
	for _, engine := range []struct {
		name   string
		listen testnet.ListenFunc
	}{{"net", net.Listen}, {"percore", percore.Listen}} {
		for _, transport := range []struct {
			name string
			kind testnet.Kind
			tls  bool
		}{
			{"tcp", testnet.TCP4, false},
			{"unix", testnet.Unix, false},
			{"TLS", testnet.TCP4, true},
		} {
			t.Run(engine.name+"/"+transport.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				runCases(t, engine.listen, transport.kind, transport.tls)
			})
		}
	}
}

// runCases starts an interop server and runs all cases against it.
func runCases(t *testing.T, listen testnet.ListenFunc, kind testnet.Kind, secure bool) {
	serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
	if secure {
		serverConfig, clientConfig := testnet.TLS(t)
		serverCredentials, clientCredentials = credentials.NewTLS(serverConfig), credentials.NewTLS(clientConfig)
	}
	ln := testnet.Listen(t, listen, kind)
	server := grpc.NewServer(grpc.Creds(serverCredentials), orca.CallMetricsServerOption(nil))
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Stop()
		if err := testnet.Receive(t, "Serve ending", served); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			options := []grpc.DialOption{
				grpc.WithTransportCredentials(clientCredentials),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, ln.Addr().Network(), ln.Addr().String())
				}),
			}
			if config, ok := serviceConfigs[c.name]; ok {
				options = append(options, grpc.WithDefaultServiceConfig(config))
			}
			cc, err := grpc.NewClient("passthrough:///localhost", options...)
			if err != nil {
				t.Fatalf("NewClient: %v", err)
			}
			defer cc.Close()
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			defer cancel()
			if err := runCase(ctx, c, cc); err != nil {
				t.Error(err)
			}
		})
	}
}

// runCase returns what the case fails with, if it does.
func runCase(ctx context.Context, c interopCase, cc *grpc.ClientConn) (err error) {
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case caseFailed:
			err = errors.New(failure.message)
		default:
			panic(failure)
		}
	}()
	c.run(ctx, cc)
	return nil
}

// TestFailedCaseIsNoticed runs a case against a server without the service.
func TestFailedCaseIsNoticed(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server := grpc.NewServer()
	go server.Serve(ln)
	defer server.Stop()
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	defer cc.Close()
	if err := runCase(t.Context(), cases[0], cc); err == nil {
		t.Error("got no failure, want one")
	}
}
