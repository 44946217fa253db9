package pool_test

import (
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/pool"
)

func TestGetCapacity(t *testing.T) {
	p := pool.New(pool.Config{})
	for _, test := range []struct{ n, capacity int }{
		{0, 1 << 10},
		{1, 1 << 10},
		{1<<10 - 1, 1 << 10},
		{1 << 10, 1 << 10},
		{1<<10 + 1, 2 << 10},
		{4096, 4096},
		{4097, 8192},
		{32 << 10, 32 << 10},
		{1<<19 + 1, 1 << 20},
		{1 << 20, 1 << 20},
		{1<<20 + 1, 1<<20 + 1},
		{3<<20 + 5, 3<<20 + 5},
	} {
		for _, use := range []string{"first", "second"} {
			b := p.Get(test.n)
			if b.Len() != test.n || len(b.Bytes()) != test.n {
				t.Errorf("%s Get(%d): Len %d, len(Bytes) %d", use, test.n, b.Len(), len(b.Bytes()))
			}
			if b.Cap() != test.capacity || cap(b.Bytes()) != test.capacity {
				t.Errorf("%s Get(%d): Cap %d, cap(Bytes) %d, want %d", use, test.n, b.Cap(), cap(b.Bytes()), test.capacity)
			}
			b.Release()
		}
	}
	checkBalanced(t, p)
}

func TestGetNegative(t *testing.T) {
	mustPanic(t, "negative length", func() { pool.Get(-1) })
}

func TestDefault(t *testing.T) {
	before := pool.Default().Stats()
	b, g, raw := pool.Get(10), pool.Growable(), pool.GetBytes(10)
	if got, want := pool.ReadStats().Gets-before.Gets, uint64(3); got != want {
		t.Errorf("the package's functions got %d buffers of the default pool, want %d", got, want)
	}
	if got := len(pool.Leaks()); got != 3 {
		t.Errorf("Leaks lists %d buffers, want 3", got)
	}
	if err := pool.CheckLeaks(); err == nil || !strings.Contains(err.Error(), "1024 bytes") {
		t.Errorf("CheckLeaks with buffers in use: got %v", err)
	}
	b.Release()
	g.Release()
	pool.PutBytes(raw)
	if err := pool.CheckLeaks(); err != nil {
		t.Errorf("CheckLeaks: %v", err)
	}
}

func TestStats(t *testing.T) {
	// No test can count on hits: a collection may empty the caches at any time. But
	// gets, releases and what is in use are exact.
	p := pool.New(pool.Config{})
	a, b := p.Get(5000), p.Get(1)
	over := p.Get(2 << 20)
	raw := p.GetBytes(100)
	g := p.Growable()
	g.Grow(3000)
	p.PutBytes(new(make([]byte, 4096)))
	s := p.Stats()
	want := pool.Stats{
		Gets: 5, Misses: 3, Oversize: 1, Foreign: 1,
		BuffersInUse: 5,
		BytesInUse:   8192 + 1024 + 2<<20 + 1024 + int64(g.Cap()),
		BytesKeptMax: 16 << 20 * int64(runtime.GOMAXPROCS(0)),
	}
	if s != want {
		t.Errorf("in use:\n got %+v\nwant %+v", s, want)
	}
	a.Retain()
	a.Release() // not the last one
	if got := p.Stats(); got != want {
		t.Errorf("after Retain and Release:\n got %+v\nwant %+v", got, want)
	}
	for _, buf := range []*pool.Buffer{a, b, over, g} {
		buf.Release()
	}
	p.PutBytes(raw)
	s = p.Stats()
	want.Releases, want.BuffersInUse, want.BytesInUse, want.BytesKept = 5, 0, 0, 8192+1024+1024
	if !raceEnabled && s.BytesKept > want.BytesKept || s.BytesKept < 0 {
		t.Errorf("kept %d bytes, want at most %d", s.BytesKept, want.BytesKept)
	}
	s.BytesKept = want.BytesKept
	if s != want {
		t.Errorf("released:\n got %+v\nwant %+v", s, want)
	}
}

// holdAndRelease has n buffers in use at once.
func holdAndRelease(p *pool.Pool, n, length int) {
	held := make([]*pool.Buffer, n)
	for i := range held {
		held[i] = p.Get(length)
	}
	for _, b := range held {
		b.Release()
	}
}

func TestKeptBytesMax(t *testing.T) {
	for _, max := range []int64{-1, 1, 1 << 10, 64 << 10, 1<<20 + 7, 8 << 20} {
		p := pool.New(pool.Config{KeptBytesMax: max})
		for _, length := range []int{1 << 10, 4 << 10, 64 << 10, 1 << 20} {
			holdAndRelease(p, 16<<20/length/2, length) // 8 MiB
			s := p.Stats()
			if s.BytesKept > s.BytesKeptMax || s.BytesKeptMax > max && max > 0 {
				t.Errorf("KeptBytesMax %d, 8 MiB in buffers of %d: keeps %d, limit %d", max, length, s.BytesKept, s.BytesKeptMax)
			}
		}
		checkBalanced(t, p)
	}
}

// TestKeptForReal doesn't believe the counters: it counts what Get finds.
func TestKeptForReal(t *testing.T) {
	for _, max := range []int64{256 << 10, 4 << 20} {
		p := pool.New(pool.Config{KeptBytesMax: max})
		const length = 16 << 10
		count := int(4 * max / length)
		for range 3 {
			holdAndRelease(p, count, length)
		}
		before := p.Stats()
		held := make([]*pool.Buffer, count)
		for i := range held {
			held[i] = p.Get(length)
		}
		after := p.Stats()
		hits := int64(after.Gets - before.Gets - (after.Misses - before.Misses))
		if hits*length > max || hits == 0 && !raceEnabled {
			t.Errorf("KeptBytesMax %d: Get found %d bytes, want at most that, but some", max, hits*length)
		}
		for _, b := range held {
			b.Release()
		}
		checkBalanced(t, p)
	}
}

func TestKeepNothing(t *testing.T) {
	p := pool.New(pool.Config{KeptBytesMax: -1})
	for range 10 {
		p.Get(1).Release()
		p.PutBytes(p.GetBytes(1))
		g := p.Growable()
		g.Write(make([]byte, 1000))
		g.Release()
	}
	if s := p.Stats(); s.Misses != 20 || s.BytesKept != 0 || s.Gets != 30 || s.Releases != 30 {
		t.Errorf("a pool that keeps nothing: %+v", s)
	}
}

// TestReuse gets what was just released, both as a resident and as an overflow
// buffer.
func TestReuse(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops buffers at random under the race detector")
	}
	const max = 1 << 20
	for _, test := range []struct {
		name string
		held int // bytes in use meanwhile
	}{
		{"residents", 0},
		{"overflow", max},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := pool.New(pool.Config{KeptBytesMax: max})
			var held []*pool.Buffer
			for range test.held / 4096 {
				held = append(held, p.Get(4096))
			}
			before := p.Stats()
			const rounds = 10000
			for range rounds {
				p.Get(4096).Release()
			}
			// A collection in between costs a miss or two, and so does every change of P.
			misses := p.Stats().Misses - before.Misses
			if misses > rounds/10 {
				t.Errorf("%d of %d Gets missed, want hardly any", misses, rounds)
			}
			for _, b := range held {
				b.Release()
			}
			checkBalanced(t, p)
		})
	}
}

// TestCollection: what is kept is dropped by the collector when nobody wants it,
// and its share of the limit is there again.
func TestCollection(t *testing.T) {
	p := pool.New(pool.Config{KeptBytesMax: 1 << 20})
	for round := range 3 {
		holdAndRelease(p, 1024, 1<<10) // residents and overflow buffers
		// That is 512 and 256 KiB, unless a collection comes in between.
		if kept := p.Stats().BytesKept; !raceEnabled && (kept <= 512<<10 || kept > 1<<20) {
			t.Errorf("round %d: %d bytes kept, want about 768 KiB", round, kept)
		}
		eventually(t, "the collector takes what is kept", func() bool { return p.Stats().BytesKept == 0 })
	}
	if s := p.Stats(); s.Gets != 3*1024 || s.Releases != 3*1024 || s.Leaked != 0 {
		t.Errorf("after collections: %+v", s)
	}
	checkBalanced(t, p)
}

// TestAbandonedPool: a Pool that is no longer used doesn't stay in memory because
// of the cleanups of its buffers.
func TestAbandonedPool(t *testing.T) {
	gone := make(chan struct{})
	func() {
		p := pool.New(pool.Config{})
		runtime.AddCleanup(p, func(ch chan struct{}) { close(ch) }, gone)
		holdAndRelease(p, 10, 4096)
		p.Growable().Release()
		p.PutBytes(p.GetBytes(1))
	}()
	eventually(t, "the pool is collected", func() bool {
		select {
		case <-gone:
			return true
		default:
			return false
		}
	})
}

func TestLeaked(t *testing.T) {
	p := pool.New(pool.Config{KeptBytesMax: 64 << 10})
	func() {
		p.Get(4096).Retain()    // a resident
		holdAndLose(p, 32<<10)  // so is this
		p.Get(32 << 10)         // not this
		p.Get(2 << 20)          // oversize
		p.Growable().Grow(1000) // growable
		p.GetBytes(100)         // raw
		p.Get(100).Slice(1, 10) // with a slice
	}()
	eventually(t, "7 leaks are found", func() bool { return p.Stats().Leaked == 7 })
	s := p.Stats()
	if s.Gets != 7 || s.Releases != 0 || s.BuffersInUse != 0 || s.BytesInUse != 0 || s.BytesKept != 0 {
		t.Errorf("after 7 leaks: %+v", s)
	}
	if err := p.CheckLeaks(); err == nil || !strings.Contains(err.Error(), "7 buffers were garbage-collected") {
		t.Errorf("CheckLeaks: got %v", err)
	}
	// The resident part, 32 KiB, is free again: the overflow part has but 16.
	holdAndRelease(p, 64, 1024)
	if s := p.Stats(); !raceEnabled && s.BytesKept <= 16<<10 || s.BytesKept > s.BytesKeptMax {
		t.Errorf("after the leaks the pool keeps %d bytes, want about 48 KiB", s.BytesKept)
	}
}

func holdAndLose(p *pool.Pool, n int) { p.Get(n).Bytes()[0] = 1 }

// TestBytesOutliveLeak: the bytes of a lost buffer stay valid for who has them.
func TestBytesOutliveLeak(t *testing.T) {
	p := pool.New(pool.Config{})
	want := pattern(1, 4096)
	bytes := p.Get(4096).Bytes()
	copy(bytes, want)
	for range 5 {
		runtime.GC()
		holdAndRelease(p, 100, 4096)
	}
	checkBytes(t, "bytes of a lost buffer", bytes, want)
	if leaked := p.Stats().Leaked; leaked != 0 {
		t.Errorf("%d buffers count as leaked while their bytes are in use", leaked)
	}
	runtime.KeepAlive(bytes)
}

func TestGetBytes(t *testing.T) {
	p := pool.New(pool.Config{})
	for _, n := range []int{0, 1, 1024, 1025, 1 << 20, 1<<20 + 1} {
		for _, test := range []struct {
			name string
			put  func(bytes *[]byte)
		}{
			{"as it came", func(bytes *[]byte) { p.PutBytes(bytes) }},
			{"resliced", func(bytes *[]byte) { *bytes = (*bytes)[:n/2]; p.PutBytes(bytes) }},
			{"extended", func(bytes *[]byte) { *bytes = (*bytes)[:cap(*bytes)]; p.PutBytes(bytes) }},
			{"another variable", func(bytes *[]byte) { other := *bytes; p.PutBytes(&other); runtime.KeepAlive(bytes) }},
			{"original changed", func(bytes *[]byte) { other := *bytes; *bytes = nil; p.PutBytes(&other); runtime.KeepAlive(bytes) }},
		} {
			before := p.Stats()
			bytes := p.GetBytes(n)
			if len(*bytes) != n {
				t.Errorf("GetBytes(%d) has %d bytes", n, len(*bytes))
			}
			test.put(bytes)
			after := p.Stats()
			if after.Releases != before.Releases+1 || after.BuffersInUse != 0 || after.Foreign != 0 {
				t.Errorf("GetBytes(%d), PutBytes %s: %+v", n, test.name, after)
			}
			b := p.Get(n) // perhaps the same memory
			if b.Len() != n || b.Cap() < n {
				t.Errorf("Get(%d) after PutBytes %s: Len %d, Cap %d", n, test.name, b.Len(), b.Cap())
			}
			b.Release()
		}
	}
	checkBalanced(t, p)
}

// TestPutBytesForeign puts slices that aren't the pool's, or not whole.
func TestPutBytesForeign(t *testing.T) {
	p, other := pool.New(pool.Config{}), pool.New(pool.Config{})
	mine, others := p.GetBytes(4096), other.GetBytes(4096)
	whole := *mine
	for i, foreign := range [][]byte{
		nil,
		{},
		make([]byte, 0, 1),
		make([]byte, 1024),
		make([]byte, 4096),
		make([]byte, 2<<20),
		*others,
		whole[1:],
		whole[:100:100],
		whole[:4095:4095],
		append(whole, 1), // too long: moved to new memory
	} {
		p.PutBytes(&foreign)
		if s := p.Stats(); s.Foreign != uint64(i+1) || s.BuffersInUse != 1 {
			t.Errorf("slice %d (len %d, cap %d): %+v", i, len(foreign), cap(foreign), s)
		}
	}
	p.PutBytes(mine)
	other.PutBytes(others)
	checkBalanced(t, p)
	checkBalanced(t, other)
}

func TestPutBytesMisuse(t *testing.T) {
	// The pool doesn't know any more what the collector took from its cache.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	p := pool.New(pool.Config{})
	raw := p.GetBytes(100)
	again := *raw
	p.PutBytes(raw)
	mustPanic(t, "put already", func() { p.PutBytes(&again) })

	// It was GetBytes' before, and is a Buffer's now. A checking build, or a cache
	// that lost it, may have given us another one; then it is not known as raw at all.
	b := p.Get(100)
	bytes := b.Bytes()
	if message := panicOf(func() { p.PutBytes(&bytes) }); message == "" && p.Stats().Foreign == 0 {
		t.Error("PutBytes took what belongs to a Buffer")
	}
	if s := p.Stats(); s.BuffersInUse != 1 {
		t.Errorf("in use: %d buffers, want 1", s.BuffersInUse)
	}
	b.Release()
	checkBalanced(t, p)
}

// TestPutBytesOfLost puts a copy of a slice whose pointer is gone: the pool counts
// it as a stranger's, and as a leak when the bytes are gone too.
func TestPutBytesOfLost(t *testing.T) {
	p := pool.New(pool.Config{})
	bytes := *p.GetBytes(100)
	eventually(t, "the pool loses track of the buffer", func() bool {
		probe := bytes
		before := p.Stats().Foreign
		if p.Stats().BuffersInUse > 0 {
			p.PutBytes(&probe)
		}
		return p.Stats().Foreign > before || p.Stats().BuffersInUse == 0
	})
	runtime.KeepAlive(bytes)
}

// TestAllocations: the fast paths don't allocate.
func TestAllocations(t *testing.T) {
	if raceEnabled || invariants.Enabled {
		t.Skip("the race detector and the checking build allocate")
	}
	p := pool.New(pool.Config{})
	chunk := make([]byte, 100)
	for _, test := range []struct {
		name string
		f    func()
	}{
		{"Get", func() { p.Get(4096).Release() }},
		{"Get, Retain", func() { b := p.Get(1); b.Retain(); b.Release(); b.Release() }},
		{"Slice", func() { b := p.Get(100); b.Slice(1, 50).Release(); b.Release() }},
		{"Write", func() { b := p.Get(0); b.Write(chunk); b.Release() }},
		{"Growable", func() { g := p.Growable(); g.Write(chunk); g.Release() }},
		{"GetBytes", func() { p.PutBytes(p.GetBytes(4096)) }},
	} {
		// AllocsPerRun rounds down, so a collection in between does no harm.
		if got := testing.AllocsPerRun(1000, test.f); got != 0 {
			t.Errorf("%s: %v allocations, want 0", test.name, got)
		}
	}
	checkBalanced(t, p)
}

// TestInlining: the accessors are called once per read and write; they must
// remain inlinable.
func TestInlining(t *testing.T) {
	if invariants.Enabled {
		t.Skip("the accessors check in this build")
	}
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, method := range []string{"Bytes", "Len", "Cap"} {
		if want := "can inline (*Buffer)." + method; !strings.Contains(string(out), want+"\n") {
			t.Errorf("the compiler doesn't say %q", want)
		}
	}
}

// TestOneImporter: bytebufferpool stays behind one file.
func TestOneImporter(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var importers []string
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range f.Imports {
			path, _ := strconv.Unquote(spec.Path.Value)
			if strings.Contains(path, "bytebufferpool") && !strings.HasSuffix(name, "_test.go") {
				importers = append(importers, name)
			}
		}
	}
	if got := strings.Join(importers, " "); got != "growable.go" {
		t.Errorf("bytebufferpool is imported by %q, want growable.go alone", got)
	}
}
