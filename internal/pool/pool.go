package pool

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

const (
	// ClassBytesMax is the largest capacity that is kept: the most that a pipe holds
	// without privileges (pipe(7), fs.pipe-max-size) and the top of gRPC's own pool.
	// Above it zeroing and faulting in the memory costs far more than allocating it.
	ClassBytesMax = 1 << classShiftMax

	// classBytesMin is the smallest capacity handed out. A buffer has some 200 bytes of
	// bookkeeping, which should not exceed a quarter of its memory.
	classBytesMin = 1 << classShiftMin

	classShiftMin = 10
	classShiftMax = 20

	// oversize is the class of buffers that are larger and never kept.
	oversize   = classShiftMax - classShiftMin + 1
	classCount = oversize + 1
)

// Config sets up a Pool. The zero value is ready to use. The public Config has the same fields, and
// says what they mean.
type Config struct {
	KeptBytesMax    int64
	LeakSampleEvery int
}

// Pool is a set of reusable buffers. Make it with New. All its methods are safe for concurrent use, and
// none blocks for longer than it takes to count the buffers.
type Pool struct {
	config atomic.Pointer[Config] // nil if it is the zero value
	kept   atomic.Int64           // bytes in released buffers, roughly; only with a limit

	caches  [classCount]sync.Pool // of *Buffer without references; that of oversize is empty
	bare    [oversize]bareClass
	foreign atomic.Uint64 // slices that PutBytes didn't take

	roster roster
}

// New returns an empty Pool.
func New(config Config) *Pool {
	p := new(Pool)
	p.Configure(config)
	return p
}

// Configure changes the configuration: see the public Configure.
func (p *Pool) Configure(config Config) {
	if config.LeakSampleEvery == 0 {
		config.LeakSampleEvery = defaultSampleEvery
	}
	if config == (Config{}) {
		p.config.Store(nil)
		return
	}
	p.config.Store(&config)
	p.Stats() // counts the kept bytes
}

// shared is the pool of the package's functions.
var shared = New(Config{})

// Default returns the Pool that the functions of this package use.
func Default() *Pool { return shared }

// Get is Default().Get(n).
func Get(n int) *Buffer { return shared.Get(n) }

// Get returns a buffer of n bytes with one reference, the caller's, who must Release it. The public
// Get says what capacity it has.
func (p *Pool) Get(n int) *Buffer {
	class := classOf(n)
	b, hit := p.caches[class].Get().(*Buffer)
	if !hit {
		b = p.allocate(class, n)
	}
	b.bytes = b.bytes[:n]
	b.record.begin()
	if config := p.config.Load(); config != nil {
		p.observe(b, config, hit)
	}
	checkUntouched(b.bytes, hit)
	return b
}

// classOf returns the class of buffers of n bytes.
func classOf(n int) int {
	if n <= classBytesMin {
		if n < 0 {
			panic("pool: Get of a negative length")
		}
		return 0
	}
	return min(bits.Len(uint(n-1))-classShiftMin, oversize)
}

// allocate makes a buffer of a class, for n bytes.
func (p *Pool) allocate(class, n int) *Buffer {
	capacity := n
	if class < oversize {
		capacity = classBytesMin << class
	}
	b := &Buffer{bytes: make([]byte, capacity), pool: p, class: class}
	p.roster.add(b, capacity)
	return b
}

// observe does for a buffer that is handed out what the configuration asks for.
func (p *Pool) observe(b *Buffer, config *Config, hit bool) {
	if hit && config.KeptBytesMax != 0 {
		p.kept.Add(-int64(cap(b.bytes)))
	}
	b.record.sample(config.LeakSampleEvery)
}

// put takes back a buffer that has lost its last reference.
func (p *Pool) put(b *Buffer) {
	poison(b.bytes)
	if b.class == oversize || !p.mayKeep(cap(b.bytes)) {
		b.record.drop()
		return
	}
	p.caches[b.class].Put(b)
}

// mayKeep reports whether n bytes more may be kept, and counts them.
func (p *Pool) mayKeep(n int) bool {
	config := p.config.Load()
	if config == nil || config.KeptBytesMax == 0 {
		return true
	}
	if p.kept.Add(int64(n)) <= config.KeptBytesMax {
		return true
	}
	p.kept.Add(-int64(n))
	// The collector may have taken some of the buffers that were counted as kept. Unless it
	// has run since the last count, another one would find the same.
	if p.roster.outdated() {
		p.Stats()
	}
	return false
}
