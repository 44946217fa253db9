//go:build !percore_net

package grpcadapter

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestClientHungUp: a server that hangs up behind each answer, without GOAWAY, costs no call, though the
// next one begins before the client's reader has found the end.
func TestClientHungUp(t *testing.T) {
	testnet.NoLeaks(t)
	lis := framesServer(t, func(p *frames.Peer) {
		if nextCall(p) {
			answer(p, 1)
			_ = p.Conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, p.Conn) // closing would reset the connection
		}
	})
	const calls = 10
	conns := make(chan *testnet.HeldEnd, calls)
	c := dialClient(t, lis, WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		held := testnet.HoldEnd(nc)
		conns <- held
		return held, nil
	}))
	for i := range calls {
		if err := callEcho(callContext(t), c, nil); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		testnet.Eventually(t, "the end", testnet.Receive(t, "a connection of its own", conns).HungUp)
	}
}
