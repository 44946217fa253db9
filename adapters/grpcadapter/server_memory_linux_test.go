//go:build !percore_net

package grpcadapter

import (
	"runtime"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestServerIdle: connections that wait hold no goroutine.
func TestServerIdle(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis)
	peers := make([]*frames.Peer, 50)
	peers[0] = framePeer(t, lis).Flush()
	peers[0].Next()
	before := runtime.NumGoroutine()
	for i := range peers {
		peers[i] = framePeer(t, lis)
		peers[i].Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	}
	testnet.Eventually(t, "no goroutines but some workers", func() bool { return runtime.NumGoroutine()-before <= 10 })
}

// BenchmarkServerUnary makes calls of 128 bytes, with the client in the same process.
func BenchmarkServerUnary(b *testing.B) {
	lis := testnet.Listen(b, percore.Listen, testnet.TCP4)
	startOwn(b, lis)
	cc := dialServer(b, lis)
	ctx, message := callContext(b), pattern(128)
	b.ReportAllocs()
	for b.Loop() {
		if err := callUnary(ctx, cc, message); status.Code(err) != codes.OK {
			b.Fatal(err)
		}
	}
}

// BenchmarkServerAllocs counts the allocations of a unary call at the server: the client writes
// frames.
func BenchmarkServerAllocs(b *testing.B) {
	lis := testnet.Listen(b, percore.Listen, testnet.TCP4)
	startOwn(b, lis)
	nc := testnet.Dial(b, lis)
	defer nc.Close()
	p := frames.NewPeer(b, nc)
	p.Flush()
	b.ReportAllocs()
	id, answer := uint32(1), make([]byte, 4096)
	for b.Loop() {
		p.Headers(id, false, ":method", "POST", ":scheme", "http", ":path", "/percore.test.Echo/Unary", ":authority", "h",
			"content-type", "application/grpc", "te", "trailers", "user-agent", "bench").Data(id, goodMessage, true).Window(0, 8).Flush()
		if _, err := nc.Read(answer); err != nil {
			b.Fatal(err)
		}
		id += 2
	}
}
