package pool

import (
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
)

// Buffer is a reference-counted piece of memory from a Pool. Get, Growable and
// Slice make one, each with one reference that its owner must Release.
//
// The slice that Bytes returns is only lent: after the last Release it belongs to
// somebody else.
type Buffer struct {
	life lifeRef // checking build: where it was acquired, retained and released

	// Changed by its user, in SetLen, Grow and the writing methods.
	view []byte // the bytes, up to the capacity: of the class, of grow.B, or of the slice

	// Immutable from acquire to the last Release.
	refs   *atomic.Uint64 // &home.state, or &own for a slice; see record
	home   *record        // of the memory; for a slice, that of root
	root   *Buffer        // for a slice: the buffer it holds a reference to
	grow   *growing       // for a growable buffer: what holds the bytes
	anchor *byte          // what the cleanup hangs on: the memory, or an anchor; nil for a slice

	// Atomic.
	own atomic.Uint64
}

// acquire gives the first reference to a buffer that nobody else can reach.
func (b *Buffer) acquire(op string) {
	if b.home.state.Add(oneGet|oneReference) >= foldAt {
		b.home.class.foldGets(b.home)
	}
	// Until it has a reference, even if its user throws it away at once: without one
	// its cleanup takes it for one that is kept.
	runtime.KeepAlive(b)
	b.begin(op)
}

// Bytes returns the bytes, of length Len and capacity Cap, without copying. They
// may be read and written until the caller's reference is released, or, for a
// growable buffer, until the next call that makes it grow. It may be called by
// all who hold a reference.
func (b *Buffer) Bytes() []byte {
	b.mustLive("Bytes")
	return b.view
}

// Len returns the number of bytes. It may be called by all who hold a reference.
func (b *Buffer) Len() int {
	b.mustLive("Len")
	return len(b.view)
}

// Cap returns how long SetLen can make the buffer. It may be called by all who
// hold a reference.
func (b *Buffer) Cap() int {
	b.mustLive("Cap")
	return cap(b.view)
}

// Retain adds a reference, for one more call of Release. The caller must hold one
// already. It is safe for concurrent use and never blocks. It panics if the buffer
// has been released.
func (b *Buffer) Retain() {
	b.retained("Retain")
	if b.hold() {
		return
	}
	panic("pool: Retain of a released buffer")
}

// hold adds a reference if there is at least one.
func (b *Buffer) hold() bool {
	for {
		state := b.refs.Load()
		if uint32(state) == 0 {
			return false
		}
		if b.refs.CompareAndSwap(state, state+oneReference) {
			return true
		}
	}
}

// Release gives up one reference; its holder must not use the buffer or its bytes
// any more. The last one returns the memory to the pool. It is safe for concurrent
// use and never blocks. It panics if there is no reference left to give up; if by
// then the buffer has been handed out again, it takes the new user's reference,
// which only a checking build can tell.
func (b *Buffer) Release() {
	b.released("Release")
	// Not an Add that is undone if it went below zero, though that is quicker when
	// several Ps release the same buffer: meanwhile another P might be handing the
	// buffer out, and of several wrong calls at once some would go unnoticed.
	for {
		state := b.refs.Load()
		if uint32(state) == 0 {
			panic("pool: Release of a released buffer")
		}
		if b.refs.CompareAndSwap(state, state-oneReference) {
			if uint32(state) == oneReference {
				b.free()
			}
			return
		}
	}
}

// free passes a buffer without references on to where it came from.
func (b *Buffer) free() {
	switch {
	case b.root != nil:
		b.freeSlice()
	case b.grow != nil:
		b.freeGrowable()
	default:
		b.home.class.put(b)
	}
}

// Slice returns a buffer whose bytes are bytes i to j-1 of this one, shared and not
// copied, with a reference of its own that the caller must Release. The memory
// returns to the pool when the buffer it came from and all slices are released, in
// any order. Its capacity is j-i: it can't be extended into its neighbor's bytes.
// A slice of a growable buffer keeps showing the bytes as they were if that grows
// into new memory later. Slice may be called by all who hold a reference. It
// panics unless 0 ≤ i ≤ j ≤ Len, or if the buffer has been released.
func (b *Buffer) Slice(i, j int) *Buffer {
	b.mustLive("Slice")
	if i < 0 || i > j || j > len(b.view) {
		panic(fmt.Sprintf("pool: Slice [%d:%d] of a buffer of %d bytes", i, j, len(b.view)))
	}
	root := b.root
	if root == nil {
		root = b
	}
	root.retained("Slice")
	if !root.hold() {
		panic("pool: Slice of a released buffer")
	}
	s, _ := b.home.class.pool.views.Get().(*Buffer)
	if s == nil {
		s = new(Buffer)
		s.refs = &s.own
	}
	s.view, s.root, s.home = b.view[i:j:j], root, root.home
	s.own.Store(oneGet | oneReference)
	s.begin("Slice")
	return s
}

// freeSlice keeps the header of a slice for the next one and releases its root.
func (b *Buffer) freeSlice() {
	root := b.root
	views := &b.home.class.pool.views
	b.view, b.root, b.home = nil, nil, nil
	views.Put(b.retire())
	root.Release()
}

// SetLen changes the length to n: it keeps the first n bytes, or exposes what
// happens to lie behind the last one. It needs exclusive use of the buffer. It
// panics unless 0 ≤ n ≤ Cap.
func (b *Buffer) SetLen(n int) {
	b.mustLive("SetLen")
	if n < 0 || n > cap(b.view) {
		panic(fmt.Sprintf("pool: SetLen(%d) on a buffer of capacity %d", n, cap(b.view)))
	}
	b.view = b.view[:n]
	if b.grow != nil {
		b.storeGrown(b.view)
	}
}

// Grow makes room for n more bytes: it changes Cap, not Len, and only if need be.
// It needs exclusive use of the buffer. A buffer that isn't growable panics if it
// hasn't got the room, and so does a negative n.
func (b *Buffer) Grow(n int) {
	b.mustLive("Grow")
	switch {
	case n < 0:
		panic("pool: Grow by a negative count")
	case n <= cap(b.view)-len(b.view):
	case b.grow == nil:
		panic(fmt.Sprintf("pool: Grow(%d) on a buffer of fixed capacity %d with %d bytes", n, cap(b.view), len(b.view)))
	default:
		b.growBy(n)
	}
}

// Write appends p to the bytes. It needs exclusive use of the buffer. A buffer that
// isn't growable takes what fits into its capacity and returns io.ErrShortWrite if
// that isn't all; a growable one takes everything and never fails. p is copied.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mustLive("Write")
	if b.grow != nil {
		return b.writeGrowable(p)
	}
	n := copy(b.room(), p)
	return b.wrote(n, len(p))
}

// WriteString is Write for a string.
func (b *Buffer) WriteString(s string) (int, error) {
	b.mustLive("WriteString")
	if b.grow != nil {
		return b.writeStringGrowable(s)
	}
	n := copy(b.room(), s)
	return b.wrote(n, len(s))
}

// room is what lies between the length and the capacity.
func (b *Buffer) room() []byte { return b.view[len(b.view):cap(b.view)] }

// wrote adds n bytes in place to the length, of which there should have been want.
func (b *Buffer) wrote(n, want int) (int, error) {
	b.view = b.view[:len(b.view)+n]
	if n < want {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// ReadFrom appends what it reads from r until that fails, and returns how much that
// was and the error, or nil for io.EOF. A buffer that isn't growable returns
// io.ErrShortBuffer once it is full, without asking whether more would come. It
// needs exclusive use of the buffer and blocks as r does.
func (b *Buffer) ReadFrom(r io.Reader) (int64, error) {
	b.mustLive("ReadFrom")
	if b.grow != nil {
		return b.readFromGrowable(r)
	}
	var total int64
	for len(b.view) < cap(b.view) {
		n, err := r.Read(b.room())
		b.view = b.view[:len(b.view)+n]
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
	return total, io.ErrShortBuffer
}
