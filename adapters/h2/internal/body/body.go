// Package body keeps what has come of a body and was not read yet. Its memory comes from pools, and
// readers never see it.
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
	first chunk
	more  []chunk
	left  int // bytes of all chunks
}

// A chunk is a piece of a body.
type chunk struct {
	memory   *[]byte // nil: there is no chunk
	from, to int     // what is left of it
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
	for n < len(p) && b.first.memory != nil {
		c := &b.first
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
	for b.first.memory != nil {
		b.next()
	}
	n, b.left = b.left, 0
	u.release()
	return n
}

// release gives back the chunks of a body that is empty.
func (u *Unread) release() {
	unused.Put(u.chunks)
	u.chunks = nil
}

// put adds p.
func (b *chunks) put(p []byte) {
	b.left += len(p)
	if last := b.last(); last != nil {
		n := copy((*last.memory)[last.to:cap(*last.memory)], p)
		last.to += n
		p = p[n:]
	}
	for len(p) > 0 {
		memory := pool.GetBytes(min(len(p), chunkBytes))
		*memory = (*memory)[:cap(*memory)]
		n := copy(*memory, p)
		p = p[n:]
		b.add(chunk{memory: memory, to: n})
	}
}

// last returns the chunk that has come last, or nil.
func (b *chunks) last() *chunk {
	switch n := len(b.more); {
	case n > 0:
		return &b.more[n-1]
	case b.first.memory != nil:
		return &b.first
	}
	return nil
}

func (b *chunks) add(c chunk) {
	if b.first.memory == nil {
		b.first = c
	} else {
		b.more = append(b.more, c)
	}
}

// next releases the first chunk.
func (b *chunks) next() {
	pool.PutBytes(b.first.memory)
	b.first = chunk{}
	if len(b.more) > 0 {
		b.first = b.more[0]
		b.more[0] = chunk{}
		if b.more = b.more[1:]; len(b.more) == 0 {
			b.more = nil
		}
	}
}
