package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"weak"
)

// newTestClass returns a class of a pool of its own.
func newTestClass() *class { return &New(Config{}).classes[0] }

// TestRegistry compares random registering and deregistering with a map.
func TestRegistry(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newTestClass()
		want := make(map[uintptr]*record)
		var registered []*record
		for step := range 3000 {
			// Phases of growth and of decline.
			if (step/500)%2 == 0 == (random.IntN(3) > 0) {
				address := uintptr(1+random.IntN(5000)) << 10
				if want[address] != nil {
					continue
				}
				rec := &record{class: c, address: address}
				c.register(rec)
				want[address] = rec
				registered = append(registered, rec)
			} else if len(registered) > 0 {
				i := random.IntN(len(registered))
				rec := registered[i]
				registered[i] = registered[len(registered)-1]
				registered = registered[:len(registered)-1]
				delete(want, rec.address)
				c.drop(rec)
				c.drop(rec) // no harm
			}
			probe := uintptr(1+random.IntN(5000)) << 10
			if got := c.find(probe); got != want[probe] {
				t.Fatalf("seed %d, step %d: find(%#x) = %p, want %p", seed, step, probe, got, want[probe])
			}
		}
		for address, rec := range want {
			if got := c.find(address); got != rec {
				t.Errorf("seed %d: find(%#x) = %p, want %p", seed, address, got, rec)
			}
		}
		visited := make(map[*record]bool)
		c.eachLocked(func(rec *record) { visited[rec] = true })
		if len(visited) != len(want) || c.mu.live != len(want) {
			t.Errorf("seed %d: %d records visited, live %d, want %d", seed, len(visited), c.mu.live, len(want))
		}
		if slots := len(*c.slots.Load()); slots > max(slotsMin, 16*len(registered)+4096) {
			t.Errorf("seed %d: a table of %d slots for %d records", seed, slots, len(registered))
		}
	}
}

// TestRegistryEmpty finds nothing, not even nothing's address.
func TestRegistryEmpty(t *testing.T) {
	c := newTestClass()
	for _, address := range []uintptr{0, 1, 1 << 20} {
		if got := c.find(address); got != nil {
			t.Errorf("find(%#x) in an empty registry: %p", address, got)
		}
	}
	rec := &record{class: c, address: 1 << 20}
	c.register(rec)
	c.drop(rec)
	if got := c.find(0); got != nil {
		t.Errorf("find(0) with a removed record: %p", got)
	}
}

// TestRegistryAddressReused registers memory at an address whose former record has
// not been cleaned up yet.
func TestRegistryAddressReused(t *testing.T) {
	c := newTestClass()
	first := c.newRecord(4096, ClassBytesMin)
	first.state.Store(7*oneGet | 2)
	second := c.newRecord(4096, ClassBytesMin)
	if got := c.find(4096); got != second {
		t.Errorf("find returns the record of memory that is gone: %p, want %p", got, second)
	}
	if c.mu.gets != 7 || c.mu.leaked != 1 || c.mu.live != 1 {
		t.Errorf("gets %d, leaked %d, live %d, want 7, 1, 1", c.mu.gets, c.mu.leaked, c.mu.live)
	}
	if got := c.resident.taken.Load(); got != ClassBytesMin {
		t.Errorf("residents take %d bytes, want %d", got, ClassBytesMin)
	}
	first.collected() // late
	if got := c.find(4096); got != second || c.mu.gets != 7 || c.mu.live != 1 || c.resident.taken.Load() != ClassBytesMin {
		t.Errorf("the late cleanup changed something: find %p, gets %d, live %d, taken %d",
			got, c.mu.gets, c.mu.live, c.resident.taken.Load())
	}
}

// TestCollectedAtOnce: who sees that a buffer is gone finds its share given back.
func TestCollectedAtOnce(t *testing.T) {
	p := New(Config{})
	c := &p.classes[0]
	records := make([]*record, 2000)
	for i := range records {
		records[i] = c.newRecord(uintptr(i+1)<<10, c.bytes)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, rec := range records {
			rec.collected()
		}
	})
	for live := len(records); live > 0; {
		c.mu.Lock()
		live = c.mu.live
		taken := c.resident.taken.Load()
		c.mu.Unlock()
		if want := int64(live * c.bytes); taken != want {
			t.Fatalf("%d buffers are left and take %d bytes, want %d", live, taken, want)
		}
	}
	wg.Wait()
}

// TestDropIsNotOvertaken: a buffer for which there is no room stays reachable until
// it is forgotten. Otherwise its cleanup may come first, and gives back a share of
// what may be kept that it never got.
func TestDropIsNotOvertaken(t *testing.T) {
	p := New(Config{KeptBytesMax: -1})
	b := p.Get(ClassBytesMin)
	c, rec, memory := b.home.class, b.home, weak.Make(&b.view[0])
	c.mu.Lock() // so that it can't be forgotten yet
	var wg sync.WaitGroup
	wg.Go(b.Release)
	b = nil
	for rec.references() > 0 {
		runtime.Gosched()
	}
	for range 20 {
		runtime.GC()
		if memory.Value() == nil {
			t.Error("the memory was collected while the buffer was registered as one that is kept")
			break
		}
	}
	c.mu.Unlock()
	wg.Wait()
	if kept := p.Stats().BytesKept; kept != 0 {
		t.Errorf("%d bytes kept, want 0", kept)
	}
}

// TestPutBytesAtAddressReused: the user of a buffer has let his slice grow out of its
// memory, as append does. What the allocator makes of that memory then is a stranger's.
func TestPutBytesAtAddressReused(t *testing.T) {
	p := New(Config{})
	bytes := p.GetBytes(100)
	c, address := &p.classes[0], addressOf(*bytes)
	*bytes = append(*bytes, make([]byte, ClassBytesMin)...)
	mine := addressOf(*bytes)
	c.mu.Lock() // a cleanup may take its time
	for range 5 {
		runtime.GC()
	}
	var strangers [][]byte
	for range 5000 {
		s := make([]byte, ClassBytesMin)
		strangers = append(strangers, s)
		if addressOf(s) == address {
			p.PutBytes(&s)
			break
		}
	}
	c.mu.Unlock()
	if addressOf(*bytes) != mine {
		t.Error("PutBytes of a stranger's slice put it into the hands of who has a buffer of the pool's")
	}
	p.PutBytes(bytes)
	if s := p.Stats(); s.Releases != 0 {
		t.Errorf("nothing of the pool's was put back: %+v", s)
	}
	runtime.KeepAlive(bytes)
	runtime.KeepAlive(strangers)
}

// TestRegistryConcurrentFind: what is registered is found while the table changes.
func TestRegistryConcurrentFind(t *testing.T) {
	c := newTestClass()
	stable := make([]*record, 100)
	for i := range stable {
		stable[i] = &record{class: c, address: uintptr(1+2*i) << 10}
		c.register(stable[i])
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for !stop.Load() {
				for _, rec := range stable {
					if got := c.find(rec.address); got != rec {
						t.Errorf("find(%#x) = %p, want %p", rec.address, got, rec)
						return
					}
				}
			}
		})
	}
	for round := range 20 {
		var passing []*record
		for i := range 500 {
			rec := &record{class: c, address: uintptr(2*(1+i+round)) << 10}
			c.register(rec)
			passing = append(passing, rec)
		}
		for _, rec := range passing {
			c.drop(rec)
		}
	}
	stop.Store(true)
	wg.Wait()
}

// TestFoldGets: the count of gets goes on where its bits in a record end.
func TestFoldGets(t *testing.T) {
	p := New(Config{})
	b := p.Get(1)
	const most = foldAt/oneGet - 1
	b.home.state.Store(most*oneGet | oneReference)
	if got := p.Stats().Gets; got != most {
		t.Fatalf("%d gets, want %d", got, uint64(most))
	}
	rec := b.home
	b.Release()
	// The cache may lose it (a collection, or the race detector's whim): acquire the
	// very buffer as Get does.
	again := &Buffer{view: make([]byte, ClassBytesMin), refs: &rec.state, home: rec}
	again.acquire("Get")
	if state := rec.state.Load(); state != oneReference {
		t.Errorf("state %#x after the count was folded, want %#x", state, uint64(oneReference))
	}
	if s := p.Stats(); s.Gets != most+1 || s.BuffersInUse != 1 {
		t.Errorf("%d gets and %d buffers in use, want %d and 1", s.Gets, s.BuffersInUse, uint64(most+1))
	}
	again.Retain()
	again.Release()
	again.Release()
	if s := p.Stats(); s.Gets != most+1 || s.Releases != most+1 || s.BuffersInUse != 0 {
		t.Errorf("after Release: %+v", s)
	}
}

func TestBudget(t *testing.T) {
	b := budget{bytesMax: 100}
	var wg sync.WaitGroup
	var granted atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				if b.take(30) {
					if n := granted.Add(30); n > 100 {
						t.Errorf("%d bytes granted, want at most 100", n)
					}
					granted.Add(-30)
					b.give(30)
				}
			}
		})
	}
	wg.Wait()
	for i, want := range []bool{true, true, true, false} {
		if got := b.take(30); got != want {
			t.Errorf("take %d of 30 out of 100: %v, want %v", i, got, want)
		}
	}
	if !b.take(10) || b.take(1) {
		t.Error("the budget isn't used to its last byte, or beyond it")
	}
}

func TestClassIndex(t *testing.T) {
	p := New(Config{})
	for n := 0; n <= ClassBytesMax+1; n++ {
		i := classIndex(n)
		if n > ClassBytesMax {
			if i != oversizeClass {
				t.Errorf("classIndex(%d) = %d, want that of oversize buffers, %d", n, i, oversizeClass)
			}
			continue
		}
		if p.classes[i].bytes < n || i > 0 && p.classes[i-1].bytes >= n {
			t.Fatalf("classIndex(%d) = %d, whose buffers have %d bytes", n, i, p.classes[i].bytes)
		}
	}
}
