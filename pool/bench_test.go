package pool_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/percore/percore/pool"
	"github.com/valyala/bytebufferpool"
)

// A lender is one way to get and return a buffer of n bytes. The arms beside
// percore are what people use instead; they count nothing, bound nothing and know
// no references.
type lender struct {
	name string
	// cycle returns a function that gets a buffer, writes to its first byte and
	// returns it.
	cycle func(n int) func()
}

func lenders() []lender {
	p := pool.New(pool.Config{})
	return []lender{
		{"percore", func(n int) func() {
			return func() {
				b := p.Get(n)
				b.Bytes()[0] = 1
				b.Release()
			}
		}},
		{"percore-raw", func(n int) func() {
			return func() {
				b := p.GetBytes(n)
				(*b)[0] = 1
				p.PutBytes(b)
			}
		}},
		{"sync.Pool-slice", func(n int) func() {
			sp := sync.Pool{New: func() any { return make([]byte, n) }}
			return func() {
				b := sp.Get().([]byte)
				b[0] = 1
				//lint:ignore SA6002 this is the point: it allocates for the slice header
				sp.Put(b)
			}
		}},
		{"sync.Pool-pointer", func(n int) func() {
			sp := sync.Pool{New: func() any { b := make([]byte, n); return &b }}
			return func() {
				b := sp.Get().(*[]byte)
				(*b)[0] = 1
				sp.Put(b)
			}
		}},
		{"make", func(n int) func() {
			return func() {
				touch(make([]byte, n))
			}
		}},
	}
}

// touch writes to memory, which keeps the compiler from leaving out its allocation.
//
//go:noinline
func touch(b []byte) { b[0] = 1 }

// BenchmarkGetRelease is the fast path: each goroutine gets and returns one buffer
// at a time. Run it with -cpu 1,2.
func BenchmarkGetRelease(b *testing.B) {
	for _, n := range []int{1 << 10, 4 << 10, 32 << 10} {
		for _, l := range lenders() {
			b.Run(fmt.Sprintf("%s/%d", l.name, n), func(b *testing.B) {
				cycle := l.cycle(n)
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						cycle()
					}
				})
			})
		}
	}
}

// BenchmarkHoldMany holds 64 buffers of mixed sizes at a time, as a loop that
// serves a batch of events does.
func BenchmarkHoldMany(b *testing.B) {
	sizes := [...]int{1 << 10, 4 << 10, 2 << 10, 16 << 10}
	b.Run("percore", func(b *testing.B) {
		p := pool.New(pool.Config{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var held [64]*pool.Buffer
			for i := 0; pb.Next(); i++ {
				slot := i % len(held)
				if held[slot] != nil {
					held[slot].Release()
				}
				held[slot] = p.Get(sizes[i%len(sizes)])
			}
			for _, h := range held {
				if h != nil {
					h.Release()
				}
			}
		})
	})
	b.Run("sync.Pool-pointer", func(b *testing.B) {
		var pools [len(sizes)]sync.Pool
		for i, n := range sizes {
			pools[i].New = func() any { b := make([]byte, n); return &b }
		}
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			var held [64]*[]byte
			for i := 0; pb.Next(); i++ {
				slot := i % len(held)
				if held[slot] != nil {
					pools[slot%len(sizes)].Put(held[slot])
				}
				held[slot] = pools[i%len(sizes)].Get().(*[]byte)
			}
		})
	})
}

// BenchmarkHandOff gets on one goroutine and releases on another, so that each
// buffer changes its P.
func BenchmarkHandOff(b *testing.B) {
	const batch = 128 // channel operations are not what is measured
	b.Run("percore", func(b *testing.B) {
		p := pool.New(pool.Config{})
		handOff(b, func(batch []*pool.Buffer) {
			for i := range batch {
				batch[i] = p.Get(4096)
			}
		}, func(batch []*pool.Buffer) {
			for _, buf := range batch {
				buf.Release()
			}
		}, batch)
	})
	b.Run("sync.Pool-pointer", func(b *testing.B) {
		sp := sync.Pool{New: func() any { b := make([]byte, 4096); return &b }}
		handOff(b, func(batch []*[]byte) {
			for i := range batch {
				batch[i] = sp.Get().(*[]byte)
			}
		}, func(batch []*[]byte) {
			for _, buf := range batch {
				sp.Put(buf)
			}
		}, batch)
	})
}

// handOff runs get in one goroutine and put in another, batch buffers at a time,
// four batches in flight.
func handOff[T any](b *testing.B, get, put func([]T), batch int) {
	full, empty := make(chan []T, 4), make(chan []T, 4)
	for range cap(empty) {
		empty <- make([]T, batch)
	}
	b.ReportAllocs()
	b.ResetTimer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := range full {
			put(s)
			empty <- s
		}
	}()
	for i := 0; i < b.N; i += batch {
		s := <-empty
		get(s)
		full <- s
	}
	close(full)
	<-done
}

// BenchmarkMiss is a Get that has to allocate, bookkeeping included, beside the
// allocation alone.
func BenchmarkMiss(b *testing.B) {
	for _, n := range []int{1 << 10, 32 << 10} {
		b.Run(fmt.Sprintf("percore/%d", n), func(b *testing.B) {
			p := pool.New(pool.Config{KeptBytesMax: -1})
			b.ReportAllocs()
			for b.Loop() {
				p.Get(n).Release()
			}
		})
		b.Run(fmt.Sprintf("make/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				touch(make([]byte, n))
			}
		})
	}
}

// BenchmarkOverflow is the fast path when buffers in use fill the resident part of
// what may be kept.
func BenchmarkOverflow(b *testing.B) {
	p := pool.New(pool.Config{KeptBytesMax: 1 << 20})
	var held []*pool.Buffer
	for range (1 << 20) / (4 << 10) {
		held = append(held, p.Get(4<<10))
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Get(4 << 10).Release()
		}
	})
	for _, h := range held {
		h.Release()
	}
}

// BenchmarkShare retains and releases one buffer from all goroutines: the
// reference count of a broadcast.
func BenchmarkShare(b *testing.B) {
	buf := pool.Get(4 << 10)
	defer buf.Release()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			buf.Retain()
			buf.Release()
		}
	})
}

func BenchmarkSlice(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		buf := pool.Get(4 << 10)
		defer buf.Release()
		for pb.Next() {
			buf.Slice(100, 200).Release()
		}
	})
}

// BenchmarkGrowable writes 3 times 500 bytes.
func BenchmarkGrowable(b *testing.B) {
	chunk := make([]byte, 500)
	b.Run("percore", func(b *testing.B) {
		p := pool.New(pool.Config{})
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g := p.Growable()
				for range 3 {
					g.Write(chunk)
				}
				g.Release()
			}
		})
	})
	b.Run("bytebufferpool", func(b *testing.B) {
		var p bytebufferpool.Pool
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				g := p.Get()
				for range 3 {
					g.Write(chunk)
				}
				p.Put(g)
			}
		})
	})
}

// BenchmarkStats counts pools with so many buffers.
func BenchmarkStats(b *testing.B) {
	for _, buffers := range []int{0, 1000, 10000} {
		b.Run(fmt.Sprint(buffers), func(b *testing.B) {
			p := pool.New(pool.Config{})
			held := make([]*pool.Buffer, buffers)
			for i := range held {
				held[i] = p.Get(1 << 10)
			}
			for b.Loop() {
				p.Stats()
			}
			for _, h := range held {
				h.Release()
			}
		})
	}
}
