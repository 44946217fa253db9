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
	list []chunk
	room [1]chunk // for the list of a short body
	left int      // bytes of all chunks
}

// A chunk is a piece of a body.
type chunk struct {
	memory   *[]byte
	from, to int // what is left of it
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
	if u.chunks == nil {
		u.chunks = unused.Get().(*chunks)
	}
	u.chunks.put(p)
}

// Take moves as many bytes to p as there are, or as p has room for.
func (u *Unread) Take(p []byte) (n int) {
	b := u.chunks
	if b == nil {
		return 0
	}
	for n < len(p) && len(b.list) > 0 {
		c := &b.list[0]
		m := copy(p[n:], (*c.memory)[c.from:c.to])
		n += m
		if c.from += m; c.from == c.to {
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
	b := u.chunks
	if b == nil {
		return 0
	}
	for len(b.list) > 0 {
		b.next()
	}
	n, b.left = b.left, 0
	u.release()
	return n
}

// release gives back the chunks of a body that is empty.
func (u *Unread) release() {
	u.chunks.list = nil
	unused.Put(u.chunks)
	u.chunks = nil
}

// put adds p.
func (b *chunks) put(p []byte) {
	b.left += len(p)
	if n := len(b.list); n > 0 {
		last := &b.list[n-1]
		m := copy((*last.memory)[last.to:cap(*last.memory)], p)
		last.to += m
		p = p[m:]
	} else {
		b.list = b.room[:0]
	}
	for len(p) > 0 {
		memory := pool.GetBytes(min(len(p), chunkBytes))
		*memory = (*memory)[:cap(*memory)]
		n := copy(*memory, p)
		p = p[n:]
		b.list = append(b.list, chunk{memory: memory, to: n})
	}
}

// next releases the first chunk.
func (b *chunks) next() {
	pool.PutBytes(b.list[0].memory)
	b.list[0] = chunk{}
	b.list = b.list[1:]
}
