package pool_test

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/race"
)

func TestGetCapacity(t *testing.T) {
	p := pool.New(pool.Config{})
	for _, c := range []struct{ n, want int }{
		{0, 1024}, {1, 1024}, {1024, 1024}, {1025, 2048}, {4096, 4096}, {4097, 8192}, {32 << 10, 32 << 10},
		{1<<20 - 1, 1 << 20}, {1 << 20, 1 << 20}, {1<<20 + 1, 1<<20 + 1}, {5 << 20, 5 << 20},
	} {
		b := p.Get(c.n)
		if len(b.Bytes()) != c.n || cap(b.Bytes()) != c.want {
			t.Errorf("Get(%d): got %d of %d bytes, want a capacity of %d", c.n, len(b.Bytes()), cap(b.Bytes()), c.want)
		}
		b.Release()
		raw := p.GetBytes(c.n)
		if len(*raw) != c.n || cap(*raw) != c.want {
			t.Errorf("GetBytes(%d): got %d of %d bytes, want a capacity of %d", c.n, len(*raw), cap(*raw), c.want)
		}
		p.PutBytes(raw)
	}
	mustPanic(t, "negative", func() { p.Get(-1) })
	mustPanic(t, "negative", func() { p.GetBytes(-1) })
	checkIdle(t, p)
}

// TestConcurrentDoubleRelease: however the calls meet, there are as many panics as
// there are Releases too many.
func TestConcurrentDoubleRelease(t *testing.T) {
	p := pool.New(pool.Config{})
	const references, releases = 3, 8
	for range 200 {
		b := p.Get(1)
		for range references - 1 {
			b.Retain()
		}
		var panics atomic.Int32
		var calls sync.WaitGroup
		for range releases {
			calls.Go(func() {
				if panicOf(b.Release) != "" {
					panics.Add(1)
				}
			})
		}
		calls.Wait()
		if got := panics.Load(); got != releases-references {
			t.Fatalf("%d Releases of %d references: got %d panics, want %d", releases, references, got, releases-references)
		}
	}
	checkIdle(t, p)
}

func TestSetLen(t *testing.T) {
	p := pool.New(pool.Config{})
	b := p.Get(10)
	defer b.Release()
	copy(b.Bytes(), "0123456789")
	b.SetLen(4)
	if got := string(b.Bytes()); got != "0123" {
		t.Errorf("after SetLen(4): got %q", got)
	}
	b.SetLen(cap(b.Bytes()))
	if got := b.Bytes(); len(got) != 1024 || string(got[:10]) != "0123456789" {
		t.Errorf("after SetLen of the capacity: got %d bytes, %q, want 1024 with all of the old ones", len(got), got[:10])
	}
	for _, n := range []int{-1, 1025} {
		mustPanic(t, "SetLen", func() { b.SetLen(n) })
	}
}

func TestStats(t *testing.T) {
	withoutGC(t)
	p := pool.New(pool.Config{})
	buffers := append(getMany(p, 3, 5000), getMany(p, 1, 3<<20)...)
	raw := p.GetBytes(2000)
	s := p.Stats()
	want := pool.Stats{Gets: 5, Misses: 5, BuffersInUse: 5, BytesInUse: 3*8192 + 3<<20 + 2048}
	if s != want {
		t.Errorf("in use: got %+v, want %+v", s, want)
	}
	p.PutBytes(raw)
	releaseAll(buffers)
	s = p.Stats()
	want = pool.Stats{Gets: 5, Misses: 5, BytesKept: 3 * 8192}
	if s != want {
		t.Errorf("released: got %+v, want %+v", s, want)
	}
	// An idle pool keeps nothing, and its counts stay.
	buffers = nil
	eventually(t, "an idle pool keeps nothing", func() bool { return p.Stats().BytesKept == 0 })
	want = pool.Stats{Gets: 5, Misses: 5}
	if s := p.Stats(); s != want {
		t.Errorf("collected: got %+v, want %+v", s, want)
	}
}

// TestDefault: the package's functions are those of one pool.
func TestDefault(t *testing.T) {
	before := pool.Default().Stats()
	b, raw := pool.Get(1), pool.GetBytes(1)
	if got := pool.ReadStats(); got.BuffersInUse-before.BuffersInUse != 2 || got.Gets-before.Gets != 2 {
		t.Errorf("got %+v after %+v, want two buffers more", got, before)
	}
	b.Release()
	pool.PutBytes(raw)
}

//go:noinline
func loseOne(p *pool.Pool, n int) { p.Get(n).Bytes()[0] = 1 }

func TestLeaks(t *testing.T) {
	for _, every := range []int{0, 1} {
		p := pool.New(pool.Config{LeakSampleEvery: every})
		const lost = 5
		for range lost {
			loseOne(p, 5000)
		}
		p.Get(1).Release()
		eventually(t, "the leaks are counted", func() bool { return p.Stats().Leaked == lost })
		s := p.Stats()
		if s.BuffersInUse != 0 || s.Gets != lost+1 {
			t.Errorf("got %+v, want nothing in use after %d gets", s, lost+1)
		}
		listed := lost
		if every == 0 && !invariants.Enabled {
			listed = 0
		}
		err := p.CheckLeaks()
		if err == nil {
			t.Fatal("CheckLeaks: got nil, want an error")
		}
		leaks := strings.Split(err.Error(), "garbage-collected without being released")[1:]
		if len(leaks) != listed {
			t.Fatalf("got %d leaks listed, want %d: %v", len(leaks), listed, err)
		}
		for _, text := range leaks {
			first := strings.Index(text, "loseOne")
			if !strings.Contains(text, "8192 bytes") || first < 0 || strings.Contains(text[:first], "\n\t\t") {
				t.Errorf("got %s, want 8192 bytes and a stack that begins with loseOne", text)
			}
		}
	}
}

// TestCheckLeaksOfBuffersInUse lists those that are only late, too.
func TestCheckLeaksOfBuffersInUse(t *testing.T) {
	p := pool.New(pool.Config{LeakSampleEvery: 1})
	b, raw := p.Get(1), p.GetBytes(1)
	if err := p.CheckLeaks(); err == nil || !strings.Contains(err.Error(), "2 buffers are in use") || !strings.Contains(err.Error(), "TestCheckLeaks") {
		t.Errorf("got %v, want an error with both buffers and a stack", err)
	}
	b.Release()
	p.PutBytes(raw)
	checkIdle(t, p)
}

// TestKeptBytesMax: no more is kept than the limit allows, and as much as it allows.
func TestKeptBytesMax(t *testing.T) {
	withoutGC(t)
	const bytesMax = 256 << 10
	p := pool.New(pool.Config{KeptBytesMax: bytesMax})
	for range 3 {
		releaseAll(getMany(p, 100, 32<<10))
		s := p.Stats()
		if s.BytesKept > bytesMax || !race.Enabled && s.BytesKept < bytesMax-(32<<10) {
			t.Errorf("got %d bytes kept, want about %d", s.BytesKept, bytesMax)
		}
	}
	// Buffers that the collector takes make room. Two collections empty a sync.Pool.
	for range 3 {
		eventually(t, "all is collected", func() bool { return p.Stats().BytesKept == 0 })
		releaseAll(getMany(p, 100, 16<<10))
		if got := p.Stats().BytesKept; got > bytesMax || !race.Enabled && got < bytesMax-(16<<10) {
			t.Errorf("after a collection: got %d bytes kept, want about %d", got, bytesMax)
		}
	}
	p.Configure(pool.Config{KeptBytesMax: -1})
	before := p.Stats()
	releaseAll(getMany(p, 100, 64<<10))
	if got := p.Stats(); got.BytesKept > before.BytesKept {
		t.Errorf("with nothing to be kept: got %d bytes kept, want the %d from before", got.BytesKept, before.BytesKept)
	}
	p.Configure(pool.Config{})
	releaseAll(getMany(p, 100, 64<<10))
	if got := p.Stats(); got.BytesKept < 100*32<<10 {
		t.Errorf("without a limit: got %d bytes kept, want all", got.BytesKept)
	}
}

func TestGetBytes(t *testing.T) {
	withoutGC(t)
	p := pool.New(pool.Config{})
	raw := p.GetBytes(3000)
	first := &(*raw)[0]
	*raw = (*raw)[:10] // a prefix, as gRPC gives it back
	p.PutBytes(raw)
	checkIdle(t, p)
	again := p.GetBytes(4000)
	if !race.Enabled && &(*again)[0] != first {
		t.Error("got other memory than was put, want the same")
	}
	p.PutBytes(again)
	for _, s := range [][]byte{nil, make([]byte, 100), make([]byte, 10, 3000), (*p.GetBytes(3000))[1:]} {
		before := p.Stats()
		p.PutBytes(&s)
		if after := p.Stats(); after.Foreign != before.Foreign+1 || after.BuffersInUse != before.BuffersInUse {
			t.Errorf("a slice of capacity %d: got %+v after %+v, want it counted as foreign", cap(s), after, before)
		}
	}
	large := make([]byte, 2<<20)
	p.PutBytes(&large)
}

// TestLostBytes: bytes that were never put are no longer in use when the collector
// has them, and buffers kept meanwhile make no difference.
func TestLostBytes(t *testing.T) {
	p := pool.New(pool.Config{})
	const lost, kept = 5, 7
	var raws []*[]byte
	for range lost + kept {
		raws = append(raws, p.GetBytes(5000))
	}
	for _, raw := range raws[:kept] {
		p.PutBytes(raw)
	}
	if got := p.Stats().BuffersInUse; got != lost {
		t.Errorf("got %d in use, want %d", got, lost)
	}
	runtime.KeepAlive(raws)
	raws = nil
	eventually(t, "lost bytes are counted", func() bool { return p.Stats().BuffersInUse == 0 })
	if s := p.Stats(); s.Leaked != lost {
		t.Errorf("got %+v, want %d leaked", s, lost)
	}
	raw := p.GetBytes(5000)
	if got := p.Stats(); got.BuffersInUse != 1 || got.Leaked != lost {
		t.Errorf("then another: got %+v, want 1 in use and %d leaked", got, lost)
	}
	p.PutBytes(raw)
}

// TestGrowable: memory that append has moved is kept for the next user, and is counted while it is out.
func TestGrowable(t *testing.T) {
	var g pool.Growable
	defer g.Release()
	for round := range 20 {
		p := g.Memory()
		if len(p) != 0 {
			t.Fatalf("round %d: got memory of length %d, want 0", round, len(p))
		}
		var want []byte
		for i := range 50 {
			piece := bytes.Repeat([]byte{byte(i)}, rand.IntN(3000))
			p = append(p, piece...)
			want = append(want, piece...)
		}
		g.Set(p)
		if again := g.Memory(); !bytes.Equal(again[:len(p)], want) {
			t.Fatalf("round %d: Memory after Set is not the memory that was set", round)
		}
		if err := pool.CheckLeaks(); err == nil || !strings.Contains(err.Error(), "1 Growables") {
			t.Errorf("CheckLeaks before Release: got %v, want the Growable", err)
		}
		g.Release()
		g.Release()
		if err := pool.CheckLeaks(); err != nil {
			t.Errorf("CheckLeaks after Release: got %v, want nil", err)
		}
	}
}

func TestAllocations(t *testing.T) {
	if race.Enabled || invariants.Enabled {
		t.Skip("the race detector has sync.Pool drop things; a checking build keeps stacks")
	}
	withoutGC(t)
	for name, f := range map[string]func(){
		"Get":      func() { pool.Get(4096).Release() },
		"GetBytes": func() { pool.PutBytes(pool.GetBytes(4096)) },
		"Growable": func() { var g pool.Growable; g.Set(append(g.Memory(), 'x')); g.Release() },
	} {
		if n := testing.AllocsPerRun(1000, f); n > 0 {
			t.Errorf("%s: got %v allocations, want 0", name, n)
		}
	}
}
