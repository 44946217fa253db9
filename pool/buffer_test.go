package pool_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/pool"
)

// A kind is a way to make a buffer of which Release gives up the only reference.
// The buffers it needs besides are released by done.
type kind struct {
	name string
	make func(p *pool.Pool, n int) (b *pool.Buffer, done func())
}

func kinds() []kind {
	nothing := func() {}
	grown := func(p *pool.Pool, n int) *pool.Buffer {
		g := p.Growable()
		g.Grow(n)
		g.SetLen(n)
		return g
	}
	return []kind{
		{"pooled", func(p *pool.Pool, n int) (*pool.Buffer, func()) { return p.Get(n), nothing }},
		{"oversize", func(p *pool.Pool, n int) (*pool.Buffer, func()) {
			b := p.Get(pool.ClassBytesMax + 1)
			b.SetLen(n)
			return b, nothing
		}},
		{"growable", func(p *pool.Pool, n int) (*pool.Buffer, func()) { return grown(p, n), nothing }},
		{"slice", func(p *pool.Pool, n int) (*pool.Buffer, func()) {
			b := p.Get(n + 10)
			return b.Slice(5, n+5), b.Release
		}},
		{"slice of slice", func(p *pool.Pool, n int) (*pool.Buffer, func()) {
			b := p.Get(n + 10)
			defer b.Release()
			s := b.Slice(5, n+8)
			return s.Slice(2, n+2), s.Release
		}},
		{"slice of growable", func(p *pool.Pool, n int) (*pool.Buffer, func()) {
			g := grown(p, n+1)
			return g.Slice(0, n), g.Release
		}},
	}
}

// forEachKind runs a test for each kind, with a buffer of n bytes, and checks the
// counters afterwards.
func forEachKind(t *testing.T, n int, test func(t *testing.T, p *pool.Pool, b *pool.Buffer)) {
	for _, kind := range kinds() {
		t.Run(kind.name, func(t *testing.T) {
			p := pool.New(pool.Config{})
			b, done := kind.make(p, n)
			test(t, p, b)
			done()
			checkBalanced(t, p)
		})
	}
}

func TestReferences(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, p *pool.Pool, b *pool.Buffer) {
		want := pattern(1, 100)
		copy(b.Bytes(), want)
		for range 5 {
			b.Retain()
		}
		for range 5 {
			b.Release()
			holdAndRelease(p, 3, 100) // would take the memory if it were free
			checkBytes(t, "retained buffer", b.Bytes(), want)
		}
		b.Release()
	})
}

func TestDoubleRelease(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, p *pool.Pool, b *pool.Buffer) {
		b.Release()
		for range 3 {
			mustPanic(t, "Release of a released buffer", b.Release)
		}
		// Nothing is out of step.
		holdAndRelease(p, 3, 100)
	})
}

// TestConcurrentDoubleRelease: of those who release the same reference at the same
// time exactly one succeeds.
func TestConcurrentDoubleRelease(t *testing.T) {
	const releasers, references = 8, 3
	for range 100 {
		forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
			for range references - 1 {
				b.Retain()
			}
			var panics atomic.Int32
			var wg sync.WaitGroup
			for range releasers {
				wg.Go(func() {
					if panicOf(b.Release) != "" {
						panics.Add(1)
					}
				})
			}
			wg.Wait()
			if got, want := panics.Load(), int32(releasers-references); got != want {
				t.Errorf("%d of %d releases panicked, want %d", got, releasers, want)
			}
		})
	}
}

func TestRetainAfterRelease(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		b.Release()
		mustPanic(t, "Retain of a released buffer", b.Retain)
		mustPanic(t, "Release of a released buffer", b.Release)
	})
}

func TestSliceAfterRelease(t *testing.T) {
	p := pool.New(pool.Config{})
	b := p.Get(100)
	b.Release()
	mustPanic(t, "Slice of a released buffer", func() { b.Slice(0, 1) })
	checkBalanced(t, p)
}

func TestSlice(t *testing.T) {
	forEachKind(t, 1000, func(t *testing.T, p *pool.Pool, b *pool.Buffer) {
		want := pattern(2, 1000)
		copy(b.Bytes(), want)
		head, tail := b.Slice(0, 300), b.Slice(300, 1000)
		middle := tail.Slice(100, 200) // 400 to 500
		empty := b.Slice(1000, 1000)
		for _, s := range []struct {
			name string
			*pool.Buffer
			want []byte
		}{
			{"head", head, want[:300]},
			{"tail", tail, want[300:]},
			{"middle", middle, want[400:500]},
			{"empty", empty, nil},
		} {
			checkBytes(t, s.name, s.Bytes(), s.want)
			if s.Len() != len(s.want) || s.Cap() != len(s.want) {
				t.Errorf("%s: Len %d, Cap %d, want %d for both", s.name, s.Len(), s.Cap(), len(s.want))
			}
		}

		middle.Bytes()[0] = 0xEE
		if got := b.Bytes()[400]; got != 0xEE {
			t.Errorf("the slice doesn't share its bytes: got %#x, want 0xee", got)
		}
		want[400] = 0xEE

		// In another order than they were made; the bytes live as long as any of them.
		b.Release()
		tail.Release()
		empty.Release()
		holdAndRelease(p, 4, 1000)
		checkBytes(t, "head after the others' release", head.Bytes(), want[:300])
		head.Release()
		holdAndRelease(p, 4, 1000)
		checkBytes(t, "middle after the others' release", middle.Bytes(), want[400:500])
		middle.Release()
	})
}

func TestSliceBounds(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		for _, bounds := range [][2]int{{-1, 1}, {0, 101}, {2, 1}, {101, 101}, {0, -1}} {
			mustPanic(t, "of a buffer of 100 bytes", func() { b.Slice(bounds[0], bounds[1]) })
		}
		b.Release()
	})
}

// TestSliceKeepsOldBytes: a growable buffer that moves leaves its slices behind.
func TestSliceKeepsOldBytes(t *testing.T) {
	p := pool.New(pool.Config{})
	g := p.Growable()
	g.WriteString("hello")
	s := g.Slice(1, 4)
	g.Write(make([]byte, 100<<10))
	g.Bytes()[1] = 'X'
	checkBytes(t, "slice", s.Bytes(), []byte("ell"))
	g.Release()
	forGrowables(p, 5, func(g *pool.Buffer) { g.Write(pattern(1, 1000)) })
	checkBytes(t, "slice after Release", s.Bytes(), []byte("ell"))
	s.Release()
	checkBalanced(t, p)
}

func TestSetLen(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		want := pattern(3, 100)
		copy(b.Bytes(), want)
		capacity := b.Cap()
		for _, n := range []int{0, 50, 100, capacity, 0, capacity, 7} {
			b.SetLen(n)
			if b.Len() != n || b.Cap() != capacity {
				t.Errorf("SetLen(%d): Len %d, Cap %d, want %d and %d", n, b.Len(), b.Cap(), n, capacity)
			}
			k := min(n, 100)
			checkBytes(t, "kept bytes", b.Bytes()[:k], want[:k])
		}
		for _, n := range []int{-1, capacity + 1} {
			mustPanic(t, "SetLen", func() { b.SetLen(n) })
		}
		b.Release()
	})
}

func TestWrite(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		b.SetLen(0)
		for _, s := range []string{"hello", "", ", ", "world"} {
			if n, err := io.WriteString(b, s); n != len(s) || err != nil {
				t.Errorf("WriteString(%q): %d, %v", s, n, err)
			}
			if n, err := b.Write([]byte(s)); n != len(s) || err != nil {
				t.Errorf("Write(%q): %d, %v", s, n, err)
			}
		}
		checkBytes(t, "written", b.Bytes(), []byte("hellohello, , worldworld"))
		b.Release()
	})
}

// TestWriteFull writes more than a buffer of fixed capacity holds.
func TestWriteFull(t *testing.T) {
	p := pool.New(pool.Config{})
	for _, write := range []func(b *pool.Buffer, s string) (int, error){
		func(b *pool.Buffer, s string) (int, error) { return b.Write([]byte(s)) },
		func(b *pool.Buffer, s string) (int, error) { return b.WriteString(s) },
	} {
		b := p.Get(1020)
		if n, err := write(b, "1234567"); n != 4 || err != io.ErrShortWrite {
			t.Errorf("writing 7 bytes where 4 fit: %d, %v, want 4, %v", n, err, io.ErrShortWrite)
		}
		checkBytes(t, "what was written", b.Bytes()[1020:], []byte("1234"))
		if n, err := write(b, ""); n != 0 || err != nil {
			t.Errorf("writing nothing: %d, %v", n, err)
		}
		if n, err := write(b, "1"); n != 0 || err != io.ErrShortWrite {
			t.Errorf("writing to a full buffer: %d, %v, want 0, %v", n, err, io.ErrShortWrite)
		}
		b.Grow(0)
		mustPanic(t, "fixed capacity", func() { b.Grow(1) })
		b.Release()
	}
	checkBalanced(t, p)
}

func TestGrow(t *testing.T) {
	forEachKind(t, 100, func(t *testing.T, _ *pool.Pool, b *pool.Buffer) {
		b.SetLen(40)
		want := pattern(4, 40)
		copy(b.Bytes(), want)
		b.Grow(0)
		b.Grow(60)
		if b.Len() != 40 || b.Cap() < 100 {
			t.Errorf("Grow(60) of 40 bytes: Len %d, Cap %d", b.Len(), b.Cap())
		}
		checkBytes(t, "bytes before the room", b.Bytes(), want)
		mustPanic(t, "negative", func() { b.Grow(-1) })
		b.Release()
	})
}

func TestReadFrom(t *testing.T) {
	failure := errors.New("failure")
	for _, test := range []struct {
		name  string
		r     func() io.Reader
		fixed bool // a buffer of 1024 bytes with 24 in it, else a growable one with 24
		n     int64
		err   error
	}{
		{"fixed, fits", func() io.Reader { return bytes.NewReader(pattern(5, 500)) }, true, 500, nil},
		{"fixed, empty", func() io.Reader { return strings.NewReader("") }, true, 0, nil},
		{"fixed, one by one", func() io.Reader { return iotest.OneByteReader(bytes.NewReader(pattern(5, 500))) }, true, 500, nil},
		{"fixed, EOF with data", func() io.Reader { return iotest.DataErrReader(bytes.NewReader(pattern(5, 1000))) }, true, 1000, nil},
		{"fixed, exactly full", func() io.Reader { return bytes.NewReader(pattern(5, 1000)) }, true, 1000, io.ErrShortBuffer},
		{"fixed, too much", func() io.Reader { return bytes.NewReader(pattern(5, 1001)) }, true, 1000, io.ErrShortBuffer},
		{"fixed, failure", func() io.Reader {
			return io.MultiReader(bytes.NewReader(pattern(5, 500)), iotest.ErrReader(failure))
		}, true, 500, failure},
		{"growable, empty", func() io.Reader { return strings.NewReader("") }, false, 0, nil},
		{"growable, much", func() io.Reader { return bytes.NewReader(pattern(5, 300000)) }, false, 300000, nil},
		{"growable, one by one", func() io.Reader { return iotest.OneByteReader(bytes.NewReader(pattern(5, 5000))) }, false, 5000, nil},
		{"growable, failure", func() io.Reader {
			return io.MultiReader(bytes.NewReader(pattern(5, 500)), iotest.ErrReader(failure))
		}, false, 500, failure},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pool.New(pool.Config{})
			b := p.Growable()
			if test.fixed {
				b.Release()
				b = p.Get(0)
			}
			before := pattern(6, 24)
			b.Write(before)
			n, err := b.ReadFrom(test.r())
			if n != test.n || err != test.err {
				t.Errorf("ReadFrom: %d, %v, want %d, %v", n, err, test.n, test.err)
			}
			checkBytes(t, "bytes", b.Bytes(), append(before, pattern(5, int(test.n))...))
			b.Release()
			checkBalanced(t, p)
		})
	}
}

// TestReadFromPanic: a reader that panics leaves the buffer as it was before the
// call or after an earlier read, and releasable.
func TestReadFromPanic(t *testing.T) {
	for _, kind := range kinds() {
		p := pool.New(pool.Config{})
		b, done := kind.make(p, 10)
		b.SetLen(5)
		want := append([]byte(nil), b.Bytes()...)
		mustPanic(t, "reader panics", func() { b.ReadFrom(panicReader{}) })
		checkBytes(t, kind.name, b.Bytes()[:5], want)
		b.Release()
		done()
		checkBalanced(t, p)
	}
}

type panicReader struct{}

func (panicReader) Read([]byte) (int, error) { panic("reader panics") }

func TestGrowable(t *testing.T) {
	p := pool.New(pool.Config{})
	for round := range 50 {
		g := p.Growable()
		if g.Len() != 0 {
			t.Fatalf("round %d: a new growable buffer has %d bytes", round, g.Len())
		}
		var want []byte
		for i := range round {
			chunk := pattern(i, i*37)
			if n, err := g.Write(chunk); n != len(chunk) || err != nil {
				t.Errorf("Write of %d bytes: %d, %v", len(chunk), n, err)
			}
			want = append(want, chunk...)
		}
		checkBytes(t, "growable", g.Bytes(), want)
		if in := p.Stats().BytesInUse; in != int64(g.Cap()) {
			t.Errorf("%d bytes in use, want the capacity %d", in, g.Cap())
		}
		if round%2 == 0 {
			g.SetLen(0)
		}
		g.Release()
	}
	checkBalanced(t, p)
}

// TestGrowableMany has more of them in use than may be kept.
func TestGrowableMany(t *testing.T) {
	p := pool.New(pool.Config{KeptBytesMax: 2 << 20})
	for range 3 {
		held := make([]*pool.Buffer, 200)
		for i := range held {
			held[i] = p.Growable()
			held[i].Write(pattern(i, 2000))
		}
		for i, g := range held {
			checkBytes(t, "growable", g.Bytes(), pattern(i, 2000))
			g.Release()
		}
	}
	checkBalanced(t, p)
}

// TestGrowableKept doesn't believe any counter: it marks growable buffers and
// counts the marks that come back.
func TestGrowableKept(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the checking build poisons the marks")
	}
	const mark = 0xA5
	// A megabyte more than what other Ps may keep to themselves, of a quarter of all.
	share := 1<<20 + 2*runtime.GOMAXPROCS(0)*64<<10
	max := 4 * share
	for _, test := range []struct{ capacity, keptMin, keptMax int }{
		{64 << 10, 64 << 10, share},
		{128 << 10, 0, 0}, // too large to be kept
	} {
		p := pool.New(pool.Config{KeptBytesMax: int64(max)})
		for range 3 {
			forGrowables(p, 2*max/test.capacity, func(g *pool.Buffer) {
				g.Grow(test.capacity)
				g.SetLen(test.capacity)
				g.Bytes()[0] = mark
			})
		}
		kept := 0
		forGrowables(p, 2*max/test.capacity, func(g *pool.Buffer) {
			if g.Cap() > 0 && g.Bytes()[:1][0] == mark {
				kept += g.Cap()
			}
		})
		if kept > test.keptMax || kept < test.keptMin && !raceEnabled {
			t.Errorf("growable buffers of %d bytes: %d bytes were kept, want %d to %d", test.capacity, kept, test.keptMin, test.keptMax)
		}
		checkBalanced(t, p)
	}
}

// forGrowables has n growable buffers in use at once and calls use for each.
func forGrowables(p *pool.Pool, n int, use func(g *pool.Buffer)) {
	held := make([]*pool.Buffer, n)
	for i := range held {
		held[i] = p.Growable()
		use(held[i])
	}
	for _, g := range held {
		g.Release()
	}
}

// TestGrowableLearns: new growable buffers start with what was needed before, also
// by those who empty theirs before they release it.
func TestGrowableLearns(t *testing.T) {
	if raceEnabled {
		t.Skip("headers that sync.Pool drops at random keep their share until the next collection")
	}
	p := pool.New(pool.Config{})
	chunk := make([]byte, 1000)
	for range 50000 { // bytebufferpool draws its conclusions every 42000
		g := p.Growable()
		g.Write(chunk)
		g.SetLen(0)
		g.Release()
	}
	forGrowables(p, 20, func(g *pool.Buffer) {
		if g.Cap() < len(chunk) {
			t.Errorf("a growable buffer starts with %d bytes, want %d or more", g.Cap(), len(chunk))
		}
	})
	checkBalanced(t, p)
}
