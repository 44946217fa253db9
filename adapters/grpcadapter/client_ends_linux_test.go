//go:build !percore_net

package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/percore/percore"
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
		if err := callUnary(callContext(t), c, nil); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		testnet.Eventually(t, "the end", testnet.Receive(t, "a connection of its own", conns).HungUp)
	}
}

// TestClientAbstract: the addresses of the scheme unix-abstract are those of unix sockets without a
// file, also for a dialer of the user's, which gets them as grpc-go passes them.
func TestClientAbstract(t *testing.T) {
	name := fmt.Sprintf("percore test %d", os.Getpid())
	lis, err := percore.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	startOwn(t, lis)
	target := "unix-abstract:" + name
	if err := callUnary(callContext(t), newTestClient(t, target), pattern(10)); err != nil {
		t.Errorf("without a dialer: %v", err)
	}
	var got []string
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		got = append(got, addr)
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(addr, "unix:"))
	}
	theirs := dialTarget(t, target, grpc.WithContextDialer(dial))
	for _, cc := range []grpc.ClientConnInterface{theirs, newTestClient(t, target, WithContextDialer(dial))} {
		if err := callUnary(callContext(t), cc, pattern(10)); err != nil {
			t.Errorf("with a dialer: %v", err)
		}
	}
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("the dialers got %q, want the same twice", got)
	}
}
