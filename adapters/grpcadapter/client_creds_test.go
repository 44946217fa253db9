package grpcadapter

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore/internal/testnet"
)

// credsFunc is per-RPC credentials.
type credsFunc func(ctx context.Context) (map[string]string, error)

func (f credsFunc) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	return f(ctx)
}

func (credsFunc) RequireTransportSecurity() bool { return false }

// connect waits until cc is connected, or ctx ends.
func connect(ctx context.Context, cc stateful) {
	cc.Connect()
	for s := cc.GetState(); s != connectivity.Ready && cc.WaitForStateChange(ctx, s); s = cc.GetState() {
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
