// Package body keeps the bytes of a body that have arrived but were not read yet. Its memory comes
// from pools, and readers never see it.
package body

import (
	"sync"

	"github.com/percore/percore/internal/pool"
)

// Unread is what has come of a body and was not read. The zero value is empty. While it is empty it has
// no memory.
type Unread struct{ chunks *chunks }

// chunks is what an Unread that isn't empty has.
type chunks struct {
	list []*[]byte
	room [1]*[]byte // for the list of a short body
	read int        // bytes of the first chunk
	left int        // bytes of all chunks
}

const chunkBytes = 16 << 10 // of a chunk, at most

var unused = sync.Pool{New: func() any { return new(chunks) }}

// Bytes returns how many bytes there are.
func (u *Unread) Bytes() int {
	if u.chunks == nil {
		return 0
	}
	return u.chunks.left
}

// Put adds p, which it copies.
func (u *Unread) Put(p []byte) {
	b := u.chunks
	if b == nil {
		b = unused.Get().(*chunks)
		b.list, u.chunks = b.room[:0], b
	}
	b.left += len(p)
	if n := len(b.list); n > 0 {
		p = b.fill(b.list[n-1], p)
	}
	for len(p) > 0 {
		chunk := pool.GetBytes(min(len(p), chunkBytes))
		*chunk = (*chunk)[:0]
		b.list = append(b.list, chunk)
		p = b.fill(chunk, p)
	}
}

// fill adds as much of p to a chunk as that has room for, and returns the rest.
func (b *chunks) fill(chunk *[]byte, p []byte) (rest []byte) {
	n := min(len(p), cap(*chunk)-len(*chunk))
	*chunk = append(*chunk, p[:n]...)
	return p[n:]
}

// Take moves as many bytes to p as there are, or as p has room for.
func (u *Unread) Take(p []byte) (n int) {
	b := u.chunks
	if b == nil {
		return 0
	}
	for n < len(p) && len(b.list) > 0 {
		m := copy(p[n:], (*b.list[0])[b.read:])
		n += m
		if b.read += m; b.read == len(*b.list[0]) {
			b.next()
		}
	}
	if b.left -= n; b.left == 0 {
		u.release()
	}
	return n
}

// Drop drops all bytes, and returns how many there were.
func (u *Unread) Drop() (n int) {
	if n = u.Bytes(); n > 0 {
		u.release()
	}
	return n
}

// release gives back the memory.
func (u *Unread) release() {
	b := u.chunks
	for len(b.list) > 0 {
		b.next()
	}
	*b = chunks{}
	unused.Put(b)
	u.chunks = nil
}

// next releases the first chunk.
func (b *chunks) next() {
	pool.PutBytes(b.list[0])
	b.list[0] = nil
	b.list, b.read = b.list[1:], 0
}
