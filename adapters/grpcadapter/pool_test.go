package grpcadapter

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/mem"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// inUse returns how many buffers of percore's default pool are in use.
func inUse() int { return pool.ReadStats().BuffersInUse }

// TestBufferPoolLengths: a buffer has the requested length. If it is worth pooling, it comes from
// the pool and goes back.
func TestBufferPoolLengths(t *testing.T) {
	p := BufferPool()
	before := pool.ReadStats()
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
	if got := pool.ReadStats().Foreign - before.Foreign; got != 0 {
		t.Errorf("got %d buffers that the pool didn't know, want 0", got)
	}
}

// TestBufferPoolLife: a buffer is in use from mem.NewBuffer until the last Free, whichever
// reference that is: splits and slices of it, or references in a BufferSlice.
func TestBufferPoolLife(t *testing.T) {
	p := BufferPool()
	before := inUse()
	out := func(step string, want int) {
		t.Helper()
		if got := inUse() - before; got != want {
			t.Errorf("%s: got %d buffers out, want %d", step, got, want)
		}
	}
	data := p.Get(10_000)
	copy(*data, pattern(10_000))
	b := mem.NewBuffer(data, p)
	b.Ref()
	view := b.Slice(100, 200)
	left, right := mem.SplitUnsafe(b, 5000)
	out("in use", 1)
	left.Free() // b's first reference
	view.Free()
	right.Free()
	out("with one reference left", 1)
	left.Free()
	out("after the last Free", 0)

	first := mem.Copy(pattern(3000), p)
	slices := mem.BufferSlice{first, mem.Copy(pattern(4000), p), mem.Copy(pattern(10), p)}
	out("a slice of two, and one too small to pool", 2)
	whole := slices.MaterializeToBuffer(p)
	out("and the two in one", 3)
	slices.Free()
	out("the one", 1)
	if got := len(whole.ReadOnlyData()); got != 7010 {
		t.Errorf("materialized: got %d bytes, want 7010", got)
	}
	whole.Free()
	out("at the end", 0)
}

// TestNoBufferLeft: after calls and streams of all sizes, with percore's pool at both ends, every
// buffer has been returned.
func TestNoBufferLeft(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, listenAdapted, testnet.TCP4)
	srv := startServer(t, plainServe, lis, ServerOptions()...)
	cc := dialServer(t, lis, DialOptions()...)
	before := pool.ReadStats()
	for _, n := range []int{0, 100, 1024, 2000, 16 << 10, 100_000, 1 << 20, 3 << 20} {
		if err := callUnary(callContext(t), cc, pattern(n)); err != nil {
			t.Errorf("a call with %d bytes: %v", n, err)
		}
		stream, err := openChat(callContext(t), cc)
		if err == nil {
			err = say(stream, pattern(n))
		}
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil {
			t.Errorf("a stream with %d bytes: %v", n, err)
		}
	}
	cc.Close()
	srv.GracefulStop()
	if got := pool.ReadStats().Gets - before.Gets; got == 0 {
		t.Error("no buffer of the pool was used")
	}
	testnet.Eventually(t, "all buffers being back", func() bool { return inUse() <= before.BuffersInUse })
}

// BenchmarkBufferPool compares with grpc-go's default pool, at its sizes and between them, for a
// few buffers at once and for many. An operation is a Get and a Put.
func BenchmarkBufferPool(b *testing.B) {
	for _, size := range []int{100, 256, 1000, 4 << 10, 5000, 16 << 10, 32 << 10, 100_000, 1 << 20, 4 << 20} {
		for _, held := range []int{1, 512, 2048} {
			if held*size > 256<<20 {
				continue
			}
			for _, arm := range []struct {
				name string
				pool mem.BufferPool
			}{{"percore", BufferPool()}, {"grpc", mem.DefaultBufferPool()}} {
				b.Run(fmt.Sprintf("%d/held=%d/%s", size, held, arm.name), func(b *testing.B) {
					buffers := make([]*[]byte, held)
					b.ReportAllocs()
					for left := b.N; left > 0; left -= held {
						n := min(held, left)
						for i := range n {
							buffers[i] = arm.pool.Get(size)
						}
						for i := range n {
							arm.pool.Put(buffers[i])
						}
					}
				})
			}
		}
	}
}
