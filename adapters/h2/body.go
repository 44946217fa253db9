package h2

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/percore/percore/internal/pool"
)

// body holds the part of a request's body that has arrived and is not read yet. Its memory comes
// from pools, and handlers never see it. A stream has a body only while that is not empty.
type body struct {
	first chunk
	more  []chunk
	left  int // bytes of all chunks
}

var bodies = sync.Pool{New: func() any { return new(body) }}

// unread is the body of a stream, or nil while it is empty.
type unread struct{ *body }

// put adds p.
func (u *unread) put(p []byte) {
	if u.body == nil {
		u.body = bodies.Get().(*body)
	}
	u.body.put(p)
}

// bytes returns how many bytes there are.
func (u *unread) bytes() int {
	if u.body == nil {
		return 0
	}
	return u.left
}

// take moves as many bytes to p as there are, or as p has room for.
func (u *unread) take(p []byte) (n int) {
	n = u.body.take(p)
	if u.first.memory == nil {
		u.release()
	}
	return n
}

// drop drops all bytes, and returns how many there were.
func (u *unread) drop() (n int) {
	if u.body == nil {
		return 0
	}
	n, u.left = u.left, 0
	for u.first.memory != nil {
		u.next()
	}
	u.release()
	return n
}

// release releases a body that is empty.
func (u *unread) release() {
	bodies.Put(u.body)
	u.body = nil
}

// chunk is a piece of a body.
type chunk struct {
	memory   *[]byte // nil: there is no chunk
	from, to int     // what is left of it
}

const chunkBytes = 16 << 10 // of a chunk, at most

// last returns the chunk that has come last, or nil.
func (b *body) last() *chunk {
	switch n := len(b.more); {
	case n > 0:
		return &b.more[n-1]
	case b.first.memory != nil:
		return &b.first
	}
	return nil
}

// put adds p.
func (b *body) put(p []byte) {
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

func (b *body) add(c chunk) {
	if b.first.memory == nil {
		b.first = c
	} else {
		b.more = append(b.more, c)
	}
}

// filling is memory of a goroutine that waits for bytes of a body: what comes is copied there at
// once, and takes no memory besides. The goroutine wakes when there is enough of it.
type filling struct {
	into  []byte // what is left to fill
	least int    // that many are still wanted; not positive: the goroutine does not wait
}

// fillingBytes is the least room that makes a filling pay.
const fillingBytes = 512

// read reads at least so many bytes, or as many as there are before an error.
func (s *Stream) read(p []byte, least int) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if !s.lockUnlessWhole() {
		return s.readWhole(p, least)
	}
	c := s.conn
	defer c.unlock()
	for n < least {
		switch err := s.readErrorLocked(); {
		case s.unread.body != nil:
			m := s.unread.take(p[n:])
			n += m
			if c.phase == alive {
				c.core.Consumed(&s.core, m)
				c.flushSoonLocked() // the client may wait for the window
			}
		case err != nil:
			return n, err
		case len(p)-n >= fillingBytes:
			n += s.fillLocked(p[n:], least-n)
		default:
			s.waitLocked()
		}
	}
	return n, nil
}

// lockUnlessWhole locks conn.mu, or reports false if the stream is whole: then reading has to be locked.
func (s *Stream) lockUnlessWhole() bool {
	if s.whole.Load() {
		return false
	}
	s.conn.mu.Lock()
	if s.whole.Load() {
		s.conn.mu.Unlock()
		return false
	}
	return true
}

// dropWhole drops what was not read of a stream that is whole.
func (s *Stream) dropWhole() {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.unread.drop() > 0 {
		s.extras.client.dropped = true
	}
}

// readWhole is read for a stream that is whole. reading is held.
func (s *Stream) readWhole(p []byte, least int) (n int, err error) {
	if s.unread.body != nil {
		n = s.unread.take(p)
	}
	switch {
	case n >= least:
		return n, nil
	case s.extras.client.dropped:
		return n, ErrEnded
	}
	return n, io.EOF
}

// fillLocked waits until at least so many bytes have come to p, or no more come.
func (s *Stream) fillLocked(p []byte, least int) (n int) {
	s.makeExtrasLocked().filling = filling{into: p, least: least}
	for s.extras.filling.least > 0 && s.readErrorLocked() == nil {
		s.waitLocked()
	}
	n = len(p) - len(s.extras.filling.into) // Move may have changed extras
	s.extras.filling = filling{}            // the memory is the caller's again
	return n
}

// take copies the beginning of p to the memory, and returns how many bytes.
func (f *filling) take(p []byte) (n int) {
	n = copy(f.into, p)
	f.into = f.into[n:]
	f.least -= n
	return n
}

// take moves as many bytes to p as there are, or as p has room for.
func (b *body) take(p []byte) (n int) {
	for n < len(p) && b.first.memory != nil {
		c := &b.first
		m := copy(p[n:], (*c.memory)[c.from:c.to])
		n += m
		if c.from += m; c.from == c.to {
			b.next()
		}
	}
	b.left -= n
	return n
}

// next releases the first chunk.
func (b *body) next() {
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

// ErrShortBody is the error of Read on a body that is shorter than declared.
var ErrShortBody = fmt.Errorf("h2: the body is shorter than its declared length: %w", io.ErrUnexpectedEOF)

// ErrLongBody is the error of Read on a body that is longer than declared. The stream is reset.
var ErrLongBody = errors.New("h2: the body is longer than its declared length")
