package pool_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
)

const mebi = 1 << 20

// BenchmarkHeld holds a number of buffers at once, releases them all, and so on, as
// connections do that are served at the same time; also while others hold 64 MiB
// for good. An operation is a Get and a Release.
func BenchmarkHeld(b *testing.B) {
	for _, longLived := range []int{0, 64} {
		for _, size := range []int{4 << 10, 32 << 10} {
			for _, held := range []int{1, 512, 2048, 8192} {
				name := fmt.Sprintf("%dKiB/held=%d/longlived=%dMiB", size>>10, held, longLived)
				b.Run(name+"/percore", func(b *testing.B) {
					p := pool.New(pool.Config{})
					for range longLived {
						defer p.Get(mebi).Release()
					}
					buffers := make([]*pool.Buffer, held)
					hold(b, held,
						func(i int) { buffers[i] = p.Get(size) },
						func(i int) { buffers[i].Release() })
					s := p.Stats()
					b.ReportMetric(100*float64(s.Misses)/float64(s.Gets), "miss%")
				})
				b.Run(name+"/syncpool", func(b *testing.B) {
					p := sync.Pool{New: func() any { s := make([]byte, size); return &s }}
					large := make([][]byte, longLived)
					for i := range large {
						large[i] = make([]byte, mebi)
					}
					buffers := make([]*[]byte, held)
					hold(b, held,
						func(i int) { buffers[i] = p.Get().(*[]byte) },
						func(i int) { p.Put(buffers[i]) })
					clear(large)
				})
			}
		}
	}
}

// hold times b.N gets and puts, held at a time.
func hold(b *testing.B, held int, get, put func(i int)) {
	for i := range held { // the first ones are not counted
		get(i)
	}
	for i := range held {
		put(i)
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := testnet.CPUTime()
	for left := b.N; left > 0; left -= held {
		n := min(held, left)
		for i := range n {
			get(i)
		}
		for i := range n {
			put(i)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(testnet.CPUTime()-start)/float64(b.N), "cpu-ns/op")
}
