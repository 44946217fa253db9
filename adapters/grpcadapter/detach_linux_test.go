//go:build !percore_net

package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestDetachMemory measures the memory of a watch that waits, and counts goroutines. The client writes
// frames, on one connection.
func TestDetachMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own: run it without -race")
	}
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	w := newWatches(t)
	const n, few, most = 10_000, 300, 900
	streams := make(chan *Answer, n+few)
	w.do = func(_ string, stream grpc.ServerStream) error {
		return Detach(stream, func(s *Answer) { streams <- s })
	}
	srv := startWatches(t, lis, w)
	p := framePeer(t, lis)
	id := uint32(1)
	open := func(n int) {
		for range n {
			call(p, id, "/Watches/Watch").Data(id, goodMessage, true)
			id += 2
		}
		p.Flush()
		p.Out = nil
	}
	await := func(n int) {
		testnet.Eventually(t, "the calls being detached", func() bool { return srv.Stats().Detached == n })
	}
	open(few)
	await(few)
	goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
	open(n)
	await(few + n)
	testnet.Eventually(t, "as few goroutines as with few calls", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	each := (testnet.HeapBytes() - before) / n
	t.Logf("%d bytes of heap per watch", each)
	if each > most {
		t.Errorf("got %d bytes of heap per watch, want %d at most", each, most)
	}
	for range few + n {
		(<-streams).Close()
	}
	await(0)
}

// TestDetachRoom: a watch of a peer that has more than its share of MaxConns with watches makes room for
// another client.
func TestDetachRoom(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, func(network, address string) (net.Listener, error) {
		config := percore.ListenConfig{MaxConns: 2}
		return config.Listen(t.Context(), network, address)
	}, testnet.TCP4)
	w := newWatches(t)
	srv := startWatches(t, lis, w)
	ctx := callContext(t)
	open := func(from, key string) grpc.ClientStream {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		cc := dialServer(t, lis, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp4", address)
		}))
		stream := w.open(ctx, cc, key)
		w.stream(key)
		return stream
	}
	watches := make(map[string]grpc.ClientStream)
	ends := make(chan string, 2)
	for i := range 2 {
		key := fmt.Sprintf("watch %d", i)
		watches[key] = open("127.0.0.1", key)
		w.stream(key).OnEnd(func(err error) {
			if status.Code(err) != codes.Canceled {
				t.Errorf("%s has ended with %v", key, err)
			}
			ends <- key
		})
	}
	testnet.Eventually(t, "the methods' return", func() bool { return srv.Stats().Detached == 2 })
	open("127.0.0.2", "another")
	ended := testnet.Receive(t, "the end of a watch", ends)
	if err := watches[ended].RecvMsg(text("")); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("got %v of %s, want ResourceExhausted", err, ended)
	}
	delete(watches, ended)
	for key, stream := range watches {
		_ = w.stream(key).SendMsg(text("still there"))
		if got := next(stream); got != "still there" {
			t.Errorf("got %s of %s", got, key)
		}
		w.stream(key).OnEnd(nil)
	}
}
