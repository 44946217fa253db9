package grpcinterop

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// clientCases are the cases that get the test service's client, and so any client. The others want a
// *grpc.ClientConn (unimplemented_method, rpc_soak, channel_soak: see below), or a policy of load
// balancing of their own (orca_per_rpc).
var clientCases = []struct {
	name string
	run  func(context.Context, testgrpc.TestServiceClient)
}{
	{"empty_unary", withoutOptions(interop.DoEmptyUnaryCall)},
	{"large_unary", withoutOptions(interop.DoLargeUnaryCall)},
	{"client_streaming", withoutOptions(interop.DoClientStreaming)},
	{"server_streaming", withoutOptions(interop.DoServerStreaming)},
	{"ping_pong", withoutOptions(interop.DoPingPong)},
	{"empty_stream", withoutOptions(interop.DoEmptyStream)},
	{"timeout_on_sleeping_server", withoutOptions(interop.DoTimeoutOnSleepingServer)},
	{"cancel_after_begin", withoutOptions(interop.DoCancelAfterBegin)},
	{"cancel_after_first_response", withoutOptions(interop.DoCancelAfterFirstResponse)},
	{"custom_metadata", withoutOptions(interop.DoCustomMetadata)},
	{"status_code_and_message", withoutOptions(interop.DoStatusCodeAndMessage)},
	{"special_status_message", withoutOptions(interop.DoSpecialStatusMessage)},
	{"pick_first_unary", interop.DoPickFirstUnary},
	{"soak", soakClient},
}

func withoutOptions(do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context, testgrpc.TestServiceClient) {
	return func(ctx context.Context, client testgrpc.TestServiceClient) { do(ctx, client) }
}

// soakClient makes the calls of rpc_soak.
func soakClient(ctx context.Context, client testgrpc.TestServiceClient) {
	var workers sync.WaitGroup
	errs := make(chan error, 20)
	for range 2 {
		workers.Go(func() {
			for range 10 {
				reply, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{
					ResponseSize: 314159, Payload: interop.ClientNewPayload(testgrpc.PayloadType_COMPRESSABLE, 271828),
				})
				if err == nil && len(reply.GetPayload().GetBody()) != 314159 {
					err = fmt.Errorf("got %d bytes", len(reply.GetPayload().GetBody()))
				}
				if err != nil {
					errs <- err
				}
			}
		})
	}
	workers.Wait()
	close(errs)
	for err := range errs {
		panic(caseFailed{err.Error()})
	}
}

// TestClientInterop runs the cases with grpcadapter's client, over every transport, for every server.
func TestClientInterop(t *testing.T) {
	for _, server := range append(slices.Clone(sides), ownServer, pastServer) {
		for _, transport := range []struct {
			name string
			kind testnet.Kind
			tls  bool
		}{
			{"tcp", testnet.TCP4, false},
			{"unix", testnet.Unix, false},
			{"TLS", testnet.TCP4, true},
		} {
			t.Run("server="+server.name+"/"+transport.name, func(t *testing.T) {
				testnet.NoLeaks(t)
				runClientCases(t, server, transport.kind, transport.tls)
			})
		}
	}
}

func runClientCases(t *testing.T, serverSide side, kind testnet.Kind, secure bool) {
	creds := [2]credentials.TransportCredentials{insecure.NewCredentials(), insecure.NewCredentials()}
	if secure {
		var configs [2]*tls.Config
		configs[0], configs[1] = testnet.TLS(t)
		creds = [2]credentials.TransportCredentials{credentials.NewTLS(configs[0]), credentials.NewTLS(configs[1])}
	}
	ln := testnet.Listen(t, serverSide.listen, kind)
	server := serverSide.newServer(creds[0])
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	serveGRPC(t, server, ln)
	conn, err := grpcadapter.NewClient(target(ln.Addr()), grpcadapter.WithTransportCredentials(creds[1]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for _, c := range clientCases {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			defer cancel()
			if err := attempt(func() { c.run(ctx, testgrpc.NewTestServiceClient(conn)) }); err != nil {
				t.Error(err)
			}
		})
	}
	for _, method := range []string{"/grpc.testing.TestService/UnimplementedCall", "/grpc.testing.UnimplementedService/UnimplementedCall"} {
		if err := conn.Invoke(t.Context(), method, new(testgrpc.Empty), new(testgrpc.Empty)); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: got %v, want Unimplemented", method, err)
		}
	}
}
