package pool

import (
	"io"
	"runtime"
	"slices"

	"github.com/valyala/bytebufferpool"
)

// Only this file knows bytebufferpool. It holds the bytes of growable buffers while
// nobody uses them and learns which size new ones should start with. It has no
// reference counts, no bound and no counters; these come from the headers.

type (
	growing     = bytebufferpool.ByteBuffer
	growingPool = bytebufferpool.Pool
)

// anchor stands for a growable buffer towards the garbage collector, as the memory
// does for the others: its bytes come and go, and a checking build makes a new
// header for each use. Its size is such that it gets memory of its own (the
// runtime packs smaller objects together and their cleanups may never run).
type anchor [16]byte

// growableKeptBytesMax is the capacity above which the bytes of a growable buffer
// are left to the collector: twice the 32 KiB that io.Copy and gRPC use, so that
// appending to a full one of those, which doubles it, doesn't lose it.
const growableKeptBytesMax = 64 << 10

// growableBudget returns how many bytes' worth of growable buffers may be made to
// be kept, so that at most keptMax bytes ever are.
//
// bytebufferpool keeps what it is given in a sync.Pool, and doesn't tell what the
// collector took from there. But it makes a new one only if it finds none, and then
// there are none but those that other Ps keep to themselves: one on each P, and one
// more from before the last collection. So if N buffers may use it at a time, it
// never holds more than N + 2·GOMAXPROCS, each of at most growableKeptBytesMax.
// Buffers above that number use memory of their own and give it to the collector.
func growableBudget(keptMax int64) int64 {
	stranded := 2 * int64(runtime.GOMAXPROCS(0)) * growableKeptBytesMax
	return max(keptMax-stranded, 0)
}

// Growable returns an empty buffer with one reference, the caller's, who must
// Release it. It grows as it is written to. What it starts with is what growable
// buffers of this pool mostly needed before. It does not block.
func (p *Pool) Growable() *Buffer {
	c := &p.classes[growableClass]
	b, _ := c.cache.Get().(*Buffer)
	if b == nil {
		b = c.allocateGrowable()
	}
	if b.home.resident {
		b.grow = p.growings.Get()
		checkPoisonGrowing(b.grow.B)
	} else {
		b.grow = new(growing)
	}
	b.home.lenPeak = 0
	b.showGrown()
	b.acquire("Growable")
	return b
}

// allocateGrowable makes a header for a growable buffer.
func (c *class) allocateGrowable() *Buffer {
	a := new(anchor)
	rec := c.newRecord(addressOf(a[:]), 0)
	runtime.AddCleanup(a, (*record).collected, rec)
	return &Buffer{refs: &rec.state, home: rec, anchor: &a[0]}
}

// freeGrowable gives the bytes to bytebufferpool and the header to its class.
func (b *Buffer) freeGrowable() {
	grow, rec := b.grow, b.home
	b.grow, b.view = nil, nil
	if rec.resident && cap(grow.B) <= growableKeptBytesMax {
		// Put takes the length for the size that was needed, and drops large buffers
		// when they seem to be rare. Our user may have emptied it with SetLen(0).
		grow.B = grow.B[:rec.lenPeak]
		poison(grow.B)
		rec.class.pool.growings.Put(grow)
	}
	rec.class.put(b)
}

// showGrown makes the bytes of b.grow those of the buffer.
func (b *Buffer) showGrown() {
	b.view = b.grow.B
	b.home.lenPeak = max(b.home.lenPeak, len(b.view))
	// Asked first, because storing costs and growing is the exception.
	if bytes := int64(cap(b.view)); b.home.bytes.Load() != bytes {
		b.home.bytes.Store(bytes)
	}
}

// storeGrown makes v, part of what b.grow holds, all that it holds.
func (b *Buffer) storeGrown(v []byte) {
	b.grow.B = v
	b.showGrown()
}

// growBy makes room for n more bytes.
func (b *Buffer) growBy(n int) { b.storeGrown(slices.Grow(b.view, n)) }

func (b *Buffer) writeGrowable(p []byte) (int, error) {
	n, err := b.grow.Write(p)
	b.showGrown()
	return n, err
}

func (b *Buffer) writeStringGrowable(s string) (int, error) {
	n, err := b.grow.WriteString(s)
	b.showGrown()
	return n, err
}

func (b *Buffer) readFromGrowable(r io.Reader) (int64, error) {
	defer b.showGrown() // r may panic
	return b.grow.ReadFrom(r)
}
