package http1

import (
	"bufio"
	"bytes"
	"io"
	"slices"
	"sync"
)

// A Reader is a bufio.Reader of net/http's size, which decides how long a line and the trailers may be,
// over bytes in memory and what follows. It belongs to a pool.
type Reader struct {
	bufio.Reader
	from source
}

// source is what a Reader's bufio.Reader reads from.
type source struct {
	first string
	left  []byte
	rest  io.Reader // nil: end is what comes
	end   error
}

var readers = sync.Pool{New: func() any {
	r := new(Reader)
	r.Reader = *bufio.NewReader(&r.from)
	return r
}}

// NewReader returns a Reader of first, then p, then rest. It keeps nothing of p.
func NewReader(first string, p []byte, rest io.Reader) *Reader {
	r := readers.Get().(*Reader)
	r.from = source{first: first, left: p, rest: rest}
	if len(p) > 0 {
		_, _ = r.Peek(1) // takes a worker's buffer whole
		r.from.left = bytes.Clone(r.from.left)
	}
	return r
}

// Unread returns a copy of the bytes that are in memory and were not read. Nothing may be left of first.
func (r *Reader) Unread() []byte {
	buffered, _ := r.Peek(r.Buffered())
	return slices.Concat(buffered, r.from.left)
}

// Release gives the Reader back.
func (r *Reader) Release() {
	r.from = source{}
	r.Reset(&r.from)
	readers.Put(r)
}

func (s *source) Read(p []byte) (n int, err error) {
	switch {
	case s.first != "":
		n = copy(p, s.first)
		s.first = s.first[n:]
	case len(s.left) > 0:
		n = copy(p, s.left)
		s.left = s.left[n:]
	case s.rest != nil:
		return s.rest.Read(p)
	default:
		return 0, s.end
	}
	return n, nil
}
