package pool

import (
	"fmt"
	"sync/atomic"

	"github.com/percore/percore/internal/invariants"
)

// Buffer is a reference-counted piece of memory of a Pool. Get makes one. The public Buffer says who
// may call what, and when it panics.
type Buffer struct {
	bytes  []byte // with the capacity of the class; changed by SetLen
	pool   *Pool
	class  int
	record *record
}

// Bytes returns the bytes.
func (b *Buffer) Bytes() []byte {
	b.mustLive("Bytes")
	return b.bytes
}

// SetLen changes the length to n.
func (b *Buffer) SetLen(n int) {
	b.mustLive("SetLen")
	if n < 0 || n > cap(b.bytes) {
		panic(fmt.Sprintf("pool: SetLen(%d) on a buffer of capacity %d", n, cap(b.bytes)))
	}
	b.bytes = b.bytes[:n]
}

// Retain adds a reference, for one more call of Release.
func (b *Buffer) Retain() {
	for {
		n := b.record.references()
		if n == 0 {
			panic("pool: Retain of a released buffer")
		}
		if atomic.CompareAndSwapUint32(&b.record.refs, n, n+1) {
			return
		}
	}
}

// Release gives up one reference. The last one returns the memory to the pool.
func (b *Buffer) Release() {
	// Not an Add that is undone if it went below zero: meanwhile another goroutine might
	// be handed the buffer.
	for {
		n := b.record.references()
		if n == 0 {
			panic("pool: Release of a released buffer")
		}
		if atomic.CompareAndSwapUint32(&b.record.refs, n, n-1) {
			if n == 1 {
				b.pool.put(b)
			}
			return
		}
	}
}

// mustLive panics, in a checking build, if the buffer has no reference.
func (b *Buffer) mustLive(op string) {
	if invariants.Enabled && b.record.references() == 0 {
		panic("pool: " + op + " of a released buffer")
	}
}

// Discard is Release for memory that unknown code may hold on to: it is never lent again. It needs
// exclusive use of the buffer, and panics if there isn't exactly one reference.
func (b *Buffer) Discard() {
	if !atomic.CompareAndSwapUint32(&b.record.refs, 1, dropped) {
		panic("pool: Discard of a buffer that has not exactly one reference")
	}
}
