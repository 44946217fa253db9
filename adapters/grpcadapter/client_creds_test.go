package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// credsFunc is per-RPC credentials.
type credsFunc func(ctx context.Context) (map[string]string, error)

func (f credsFunc) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	return f(ctx)
}

func (credsFunc) RequireTransportSecurity() bool { return false }

// connect waits until cc is connected, or ctx ends.
func connect(ctx context.Context, cc healthClient) {
	cc.Connect()
	for s := cc.GetState(); s != connectivity.Ready && cc.WaitForStateChange(ctx, s); s = cc.GetState() {
	}
}

// TestClientCredentials makes calls with credentials of all kinds with both clients, which must get the
// same, and so must the server.
func TestClientCredentials(t *testing.T) {
	testnet.NoLeaks(t)
	got := make(chan string, 1)
	answer := func(_ any, ss grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(ss.Context())
		got <- fmt.Sprint(md["token"], md["authorization"], len(md["audience"]))
		return ss.SendMsg(new(wrapperspb.BytesValue))
	}
	late := credsFunc(func(ctx context.Context) (map[string]string, error) {
		<-ctx.Done()
		return nil, nil
	})
	token := func(value string) credsFunc {
		return func(context.Context) (map[string]string, error) { return map[string]string{"Token": value}, nil }
	}
	fails := func(err error) credsFunc {
		return func(context.Context) (map[string]string, error) { return nil, err }
	}
	for _, test := range []struct {
		name    string
		clients []credentials.PerRPCCredentials // of all calls
		call    credentials.PerRPCCredentials
		short   bool // the deadline passes
	}{
		{name: "a token after the deadline, for a call", call: late, short: true},
		{name: "a token after the deadline, for all calls", clients: []credentials.PerRPCCredentials{late}, short: true},
		{name: "no token for all calls", clients: []credentials.PerRPCCredentials{fails(errors.New("no token"))}},
		{name: "no token for a call", call: fails(errors.New("no token"))},
		{name: "a status for all calls", clients: []credentials.PerRPCCredentials{fails(status.Error(codes.Aborted, "no"))}},
		{name: "two of all calls", clients: []credentials.PerRPCCredentials{token("1"), token("2")}},
		{name: "one of all calls, and one of the call", clients: []credentials.PerRPCCredentials{token("1")}, call: token("2")},
		{name: "a token", clients: []credentials.PerRPCCredentials{bearer{"all", false}}, call: bearer{"one", false}},
		{name: "a secret token of the call", clients: []credentials.PerRPCCredentials{bearer{"all", false}}, call: bearer{"one", true}},
		{name: "no secret token", call: bearer{"", true}},
	} {
		for _, secure := range []bool{false, true} {
			server, client := credentialsOf(t, secure)
			lis := testnet.Listen(t, net.Listen, testnet.TCP4)
			serveOn(t, lis, grpc.NewServer(grpc.Creds(server), grpc.UnknownServiceHandler(answer)))
			theirs, ours := []grpc.DialOption{grpc.WithTransportCredentials(client)}, []ClientOption{WithTransportCredentials(client)}
			for _, creds := range test.clients {
				theirs, ours = append(theirs, grpc.WithPerRPCCredentials(creds)), append(ours, WithPerRPCCredentials(creds))
			}
			var options []grpc.CallOption
			if test.call != nil {
				options = append(options, grpc.PerRPCCredentials(test.call))
			}
			var results []string
			for _, cc := range []healthClient{dialServer(t, lis, theirs...), dialClient(t, lis, ours...)} {
				ctx, cancel := context.WithCancel(callContext(t))
				if test.short {
					connect(ctx, cc)
					ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
				}
				result := fmt.Sprint(callUnary(ctx, cc, nil, options...))
				cancel()
				select {
				case token := <-got:
					result += token
				default: // the server has got no call
				}
				results = append(results, result)
			}
			if results[1] != results[0] {
				t.Errorf("%s, TLS %t: got %s, want %s as with grpc-go", test.name, secure, results[1], results[0])
			}
		}
	}
}

// deafCreds read until the connection ends, whatever the context says.
type deafCreds struct {
	credentials.TransportCredentials
	begun chan struct{}
	ended chan error
}

func (c deafCreds) ClientHandshake(_ context.Context, _ string, nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.begun <- struct{}{}
	_, err := io.Copy(io.Discard, nc)
	c.ended <- err
	return nc, nil, err
}

// TestClientEndsHandshake: Close ends a handshake of credentials that don't look at the context, as in
// grpc-go.
func TestClientEndsHandshake(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	creds := deafCreds{insecure.NewCredentials(), make(chan struct{}, 1), make(chan error, 1)}
	c := dialClient(t, lis, WithTransportCredentials(creds))
	c.Connect()
	testnet.Receive(t, "the handshake", creds.begun)
	c.Close()
	if err := testnet.Receive(t, "the handshake's end", creds.ended); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it has ended with %v, want %v", err, net.ErrClosed)
	}
}
