package pool_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/pool"
)

// A parcel is a reference on its way to another goroutine, with what the bytes
// must be when it arrives.
type parcel struct {
	b    *pool.Buffer
	seed int
}

// TestStress has goroutines fill buffers, keep slices, pass references on to each
// other and release them, while others look at the counters and collect garbage.
// Whoever gets a parcel finds the sender's bytes in it: no memory is handed out
// while it is referenced.
func TestStress(t *testing.T) {
	const workers, rounds = 8, 1500
	p := pool.New(pool.Config{KeptBytesMax: 256 << 10}) // little: all paths are taken
	mail := make(chan parcel, 4*workers)
	var seeds atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 2))
			for range rounds {
				send(p, random, mail, int(seeds.Add(1)))
				for range random.IntN(4) {
					receive(t, random, mail)
				}
			}
		})
	}
	stop := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() { watch(t, p, stop) })
	wg.Wait()
	close(stop)
	watcher.Wait()
	close(mail)
	for m := range mail {
		m.b.Release()
	}
	checkBalanced(t, p)
}

// send fills a new buffer and mails some references to it.
func send(p *pool.Pool, random *rand.Rand, mail chan<- parcel, seed int) {
	b := newBuffer(p, random)
	copy(b.Bytes(), pattern(seed, b.Len()))
	for range random.IntN(4) {
		b.Retain()
		select {
		case mail <- parcel{b, seed}:
		default:
			b.Release()
		}
	}
	b.Release()
}

func newBuffer(p *pool.Pool, random *rand.Rand) *pool.Buffer {
	n := 1 + random.IntN(1<<(8+random.IntN(8)))
	if random.IntN(4) > 0 {
		return p.Get(n)
	}
	g := p.Growable()
	g.Grow(n)
	g.SetLen(n)
	return g
}

// receive takes a parcel, if there is one, and checks it, perhaps by a slice that
// outlives the reference it came with.
func receive(t *testing.T, random *rand.Rand, mail <-chan parcel) {
	select {
	case m := <-mail:
		b, want := m.b, pattern(m.seed, m.b.Len())
		if random.IntN(2) == 0 {
			i := random.IntN(b.Len())
			s := b.Slice(i, b.Len())
			b.Release()
			b, want = s, want[i:]
			runtime.Gosched()
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("the bytes of a buffer (seed %d, %d bytes) changed while it was referenced", m.seed, len(want))
		}
		b.Release()
	default:
	}
}

// watch checks, until told to stop, that the bound holds and counters only grow.
func watch(t *testing.T, p *pool.Pool, stop <-chan struct{}) {
	var last pool.Stats
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		s := p.Stats()
		if s.BytesKept > s.BytesKeptMax || s.BytesKept < 0 {
			t.Errorf("%d bytes kept, want 0 to %d", s.BytesKept, s.BytesKeptMax)
		}
		if s.Gets < last.Gets || s.Misses < last.Misses || s.Leaked > 0 || s.BytesInUse < 0 {
			t.Errorf("counters went from %+v to %+v", last, s)
		}
		last = s
		if i%50 == 0 {
			runtime.GC()
		}
		runtime.Gosched()
	}
}

// TestStressGetBytes does the same for bare slices.
func TestStressGetBytes(t *testing.T) {
	p := pool.New(pool.Config{KeptBytesMax: 256 << 10})
	type parcel struct {
		bytes *[]byte
		seed  int
	}
	mail := make(chan parcel, 16)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(w), 3))
			for i := range 1000 {
				seed := w*1000 + i
				bytes := p.GetBytes(1 + random.IntN(8000))
				copy(*bytes, pattern(seed, len(*bytes)))
				mail <- parcel{bytes, seed}
				m := <-mail
				if want := pattern(m.seed, len(*m.bytes)); string(*m.bytes) != string(want) {
					t.Errorf("the bytes of a slice (seed %d, %d bytes) changed", m.seed, len(want))
				}
				*m.bytes = (*m.bytes)[:random.IntN(len(*m.bytes)+1)]
				p.PutBytes(m.bytes)
			}
		})
	}
	wg.Wait()
	if s := p.Stats(); s.Foreign != 0 {
		t.Errorf("%d slices weren't recognized", s.Foreign)
	}
	checkBalanced(t, p)
}

// TestStressShared retains and releases one buffer from many goroutines.
func TestStressShared(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		want := pattern(9, 100)
		copy(b.Bytes(), want)
		var wg sync.WaitGroup
		for i := range 8 {
			b.Retain()
			wg.Go(func() {
				defer b.Release()
				for j := range 200 {
					s := b.Slice(i, i+j%50)
					b.Retain()
					if !bytes.Equal(s.Bytes(), want[i:i+j%50]) {
						t.Error(fmt.Errorf("goroutine %d: the bytes changed", i))
					}
					b.Release()
					s.Release()
				}
			})
		}
		wg.Wait()
		b.Release()
	})
}
