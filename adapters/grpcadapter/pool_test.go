package grpcadapter

import (
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// inUse returns how many buffers of percore's default pool are in use.
func inUse() int { return percore.ReadStats().Pool.BuffersInUse }

// TestBufferPoolLengths: a buffer has the requested length. If it is worth pooling, it comes from
// the pool and goes back.
func TestBufferPoolLengths(t *testing.T) {
	p := bufferPool{}
	before := percore.ReadStats().Pool
	for _, n := range []int{0, 1, 1023, 1024, 1025, 4096, 16384, 16385, 32 << 10, 1 << 20, 1<<20 + 1, 5 << 20} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("Get(%d): got %d bytes", n, len(*b))
		}
		pooled := 0
		if !mem.IsBelowBufferPoolingThreshold(n) && n <= keptBytesMax {
			pooled = 1
		}
		if got := inUse() - before.BuffersInUse; got != pooled {
			t.Errorf("Get(%d): got %d buffers of the pool out, want %d", n, got, pooled)
		}
		*b = (*b)[:n/2] // a prefix, which is how grpc-go gives them back
		p.Put(b)
		if got := inUse() - before.BuffersInUse; got != 0 {
			t.Errorf("after Put of a buffer of %d: got %d buffers out, want 0", n, got)
		}
	}
	if got := percore.ReadStats().Pool.Foreign - before.Foreign; got != 0 {
		t.Errorf("got %d buffers that the pool didn't know, want 0", got)
	}
}

// TestNoBufferLeft: after calls and streams of all sizes, with percore's pool at both ends, every
// buffer has been returned.
func TestNoBufferLeft(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := startOwn(t, lis)
	cc := dialClient(t, lis)
	before := percore.ReadStats().Pool
	for _, n := range []int{0, 100, 1024, 2000, 16 << 10, 100_000, 1 << 20, 3 << 20} {
		if err := callUnary(callContext(t), cc, pattern(n)); err != nil {
			t.Errorf("a call with %d bytes: %v", n, err)
		}
		stream := openChat(t, callContext(t), cc)
		if err := say(stream, pattern(n)); err != nil {
			t.Errorf("a stream with %d bytes: %v", n, err)
		}
		endChat(t, stream)
	}
	cc.Close()
	srv.GracefulStop()
	if got := percore.ReadStats().Pool.Gets - before.Gets; got == 0 {
		t.Error("no buffer of the pool was used")
	}
	testnet.Eventually(t, "all buffers being back", func() bool { return inUse() <= before.BuffersInUse })
}
