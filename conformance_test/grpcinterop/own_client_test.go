package grpcinterop

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestClientInterop runs the cases with ClientConns of grpcadapter's client, over every transport, for
// every server. orca_per_rpc is left out: it has a policy of load balancing of its own.
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
	dial := func() *grpc.ClientConn {
		c, err := grpcadapter.NewClient(target(ln.Addr()), grpcadapter.WithTransportCredentials(creds[1]))
		if err != nil {
			panic(caseFailed{fmt.Sprint("NewClient: ", err)})
		}
		return c.ClientConn()
	}
	for _, c := range cases {
		switch c.name {
		case "orca_per_rpc":
			continue
		case "cancel_after_begin":
			c = service(c.name, interop.DoCancelAfterBegin) // once does
		}
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			defer cancel()
			if err := attempt(func() { c.run(ctx, dial) }); err != nil {
				t.Error(err)
			}
		})
	}
}
