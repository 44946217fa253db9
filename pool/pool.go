package pool

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
	"weak"
)

const (
	// ClassBytesMin is the smallest capacity handed out. A buffer's bookkeeping
	// takes about 250 bytes (header, record, the runtime's entries for its
	// cleanup), which should not exceed a quarter of the memory it looks after;
	// and below 1 KiB Go's allocator is quick enough by itself, which is also
	// where gRPC stops pooling.
	ClassBytesMin = 1 << classShiftMin

	// ClassBytesMax is the largest capacity that is kept. Nothing in this module
	// reads or copies in larger pieces: it is the most that a pipe holds without
	// privileges (fs.pipe-max-size, pipe(7)) and the top of gRPC's own pool. Above
	// it, zeroing and faulting in the memory costs far more than allocating it.
	ClassBytesMax = 1 << classShiftMax

	classShiftMin = 10
	classShiftMax = 20
)

// The classes of a Pool: one for each power of two, then the two whose buffers
// have no common capacity.
const (
	oversizeClass = classShiftMax - classShiftMin + 1
	growableClass = oversizeClass + 1
	classCount    = growableClass + 1
)

// keptBytesMaxPerProc is the default of Config.KeptBytesMax for each P: for a
// burst of 64 connections (about the events that one wake-up of a loop finds)
// a buffer of 32 KiB to read into and one to write from, which is what io.Copy
// and gRPC use, and 4 of the largest class. This doubled, since the part that
// costs nothing to count is half of what may be kept (see New).
const keptBytesMaxPerProc = 2 * (64*2*32<<10 + 4*ClassBytesMax)

// Config sets up a Pool. The zero value is ready to use.
type Config struct {
	// KeptBytesMax limits the bytes kept in buffers that nobody uses. Zero stands
	// for 16 MiB for each of the GOMAXPROCS at the time of New; negative keeps
	// nothing, so that every Get allocates.
	KeptBytesMax int64
}

// Pool is a set of reusable buffers. Make it with New. All its methods may be
// called by any number of goroutines at once. It must not be copied.
//
// How it stays quick: released buffers wait in a sync.Pool for each size class,
// so the usual Get and Release touch only what belongs to the running P. How it
// counts nevertheless: each buffer carries a word with its references and the
// number of times it was handed out (see record), and Stats adds these up. How
// it stays bounded: see New.
type Pool struct {
	// Immutable after New.
	keptBytesMax int64
	growings     *growingPool

	// Safe for concurrent use by themselves.
	views    sync.Pool // *Buffer, headers for Slice
	resident budget
	overflow budget
	growable budget
	nothing  budget // of size zero, for what is never kept
	foreign  atomic.Uint64
	classes  [classCount]class
	lives    lives
}

// New returns an empty Pool.
//
// KeptBytesMax is divided. Half of it, the resident part, goes to buffers as they
// are allocated, and stays theirs until the collector takes them: as no more of
// them exist than may be kept, releasing them needs no counting. A quarter, the
// overflow part, is for the buffers allocated while the residents filled their
// half; each asks for its share when it is released and returns it when it is
// handed out again. So when much more is in use than may be kept, Get still finds
// what was released last, for the price of two operations on a shared word. The
// last quarter is for growable buffers (see growableBudget). Together, what is
// kept never exceeds KeptBytesMax, not even for a moment.
func New(config Config) *Pool {
	keptMax := config.KeptBytesMax
	if keptMax == 0 {
		keptMax = keptBytesMaxPerProc * int64(runtime.GOMAXPROCS(0))
	}
	keptMax = max(keptMax, 0)
	p := &Pool{keptBytesMax: keptMax, growings: new(growingPool)}
	p.resident.bytesMax = keptMax / 2
	p.overflow.bytesMax = keptMax / 4
	p.growable.bytesMax = growableBudget(keptMax / 4)
	for i := range oversizeClass {
		p.classes[i].init(p, ClassBytesMin<<i, &p.resident, &p.overflow)
	}
	p.classes[oversizeClass].init(p, 0, &p.nothing, &p.nothing)
	p.classes[growableClass].init(p, growableKeptBytesMax, &p.growable, &p.nothing)
	return p
}

// shared is the pool of the package's functions.
var shared = New(Config{})

// Default returns the Pool that the functions of this package use. The packages
// of this module share it unless they are given another.
func Default() *Pool { return shared }

// Get is Default().Get(n).
func Get(n int) *Buffer { return shared.Get(n) }

// Growable is Default().Growable().
func Growable() *Buffer { return shared.Growable() }

// GetBytes is Default().GetBytes(n).
func GetBytes(n int) *[]byte { return shared.GetBytes(n) }

// PutBytes is Default().PutBytes(bytes).
func PutBytes(bytes *[]byte) { shared.PutBytes(bytes) }

// Get returns a buffer of n bytes with one reference, the caller's, who must
// Release it. Its capacity is the smallest power of two, from ClassBytesMin to
// ClassBytesMax, that holds n; above that it is n. The bytes are whatever their
// last user left there. Get panics if n is negative. It does not block.
func (p *Pool) Get(n int) *Buffer {
	if n < 0 {
		panic("pool: Get of a negative length")
	}
	c := &p.classes[classIndex(n)]
	b, _ := c.cache.Get().(*Buffer)
	if b == nil {
		b = c.allocate(max(n, c.bytes))
	} else if !b.home.resident {
		c.overflow.give(c.bytes)
	}
	b.view = b.view[:n]
	b.acquire("Get")
	return b
}

// classIndex returns the class for a buffer of n bytes.
func classIndex(n int) int {
	if n <= ClassBytesMin {
		return 0
	}
	return min(bits.Len(uint(n-1))-classShiftMin, oversizeClass)
}

// GetBytes is Get for those who must pass on a bare *[]byte, such as an
// implementation of gRPC's mem.BufferPool: same memory, same counters. The caller
// owns the bytes until it calls PutBytes, and may reslice them in place. It should
// keep the pointer as long as the bytes: without it they stay valid, but PutBytes
// doesn't know them any more. It does not block.
func (p *Pool) GetBytes(n int) *[]byte {
	b := p.Get(n)
	b.home.raw = true
	if b.home.handle == (weak.Pointer[Buffer]{}) {
		b.home.handle = weak.Make(b)
	}
	return &b.view
}

// PutBytes takes back what GetBytes handed out: *bytes must start where it started
// and have its full capacity, as gRPC demands too; its length may be anything. The
// caller must not use it any more. A slice that isn't from this pool is left to
// the garbage collector and counted in Stats.Foreign. PutBytes panics if the
// buffer is with the pool already or came from Get. It does not block.
func (p *Pool) PutBytes(bytes *[]byte) {
	b := p.bufferOf(*bytes)
	if b == nil {
		p.foreign.Add(1)
		return
	}
	if !b.home.raw {
		panic("pool: PutBytes of a buffer that was put already or is not from GetBytes")
	}
	b.home.raw = false
	// The caller may have a copy of the slice and have changed the original.
	b.view = (*bytes)[:cap(*bytes)]
	b.Release()
}

// bufferOf returns the buffer whose memory s is, in full, or nil.
//
// It trusts nothing about s but its address, which can't be that of two objects
// while s keeps one alive. A record may outlive its memory for a while, until its
// cleanup has run, and the address be somebody else's by then; the weak pointer
// in it tells, for it is nil as soon as the buffer is unreachable. Until then the
// buffer keeps its memory, by its anchor: its view is in the hands of its user.
func (p *Pool) bufferOf(s []byte) *Buffer {
	rec := p.classes[classIndex(cap(s))].find(addressOf(s))
	if rec == nil || int64(cap(s)) != rec.bytes.Load() {
		return nil
	}
	return rec.handle.Value()
}

// addressOf returns the address of the first byte of s as a mere number, which
// does not keep the memory alive.
func addressOf(s []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(s))) }

// budget is a number of bytes that can be taken and given back. It is safe for
// concurrent use, and never more than bytesMax is taken.
type budget struct {
	bytesMax int64 // immutable
	taken    atomic.Int64
	_        [64 - 16]byte // its own cache line: overflow is written by all Ps when in use
}

// take reports whether n bytes were left, and takes them.
func (b *budget) take(n int) bool {
	for {
		taken := b.taken.Load()
		if taken+int64(n) > b.bytesMax {
			return false
		}
		if b.taken.CompareAndSwap(taken, taken+int64(n)) {
			return true
		}
	}
}

// give returns n bytes that were taken.
func (b *budget) give(n int) { b.taken.Add(-int64(n)) }
