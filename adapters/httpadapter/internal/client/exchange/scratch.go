package exchange

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"sync"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// scratch is the memory that an exchange needs besides its connection. It serves another exchange only
// when no read uses it any more, and user code can't reach it.
type scratch struct {
	c *pool.Conn

	br     *bufio.Reader // reads from the scratch
	limit  int64         // how many bytes may be read
	err    error         // reading has failed with, or io.EOF
	answer http1.Answer

	out []byte // the request
}

// outBytesKept is the longest memory for requests that is kept.
const outBytesKept = 64 << 10

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch(c *pool.Conn, base *http.Transport) *scratch {
	size := base.ReadBufferSize
	if size <= 0 {
		size = 4 << 10
	}
	s := scratches.Get().(*scratch)
	s.c = c
	if s.br == nil || s.br.Size() != size {
		s.br = bufio.NewReaderSize(s, size)
	}
	return s
}

// release gives the memory back. No read must be under way.
func (s *scratch) release() {
	if s.c.Link.KeepsWrites() || cap(s.out) > outBytesKept {
		s.out = nil
	}
	s.c, s.err = nil, nil
	s.br.Reset(s)
	scratches.Put(s)
}

// isClean reports whether no byte follows the answer, and no end. It logs such bytes, as net/http does.
func (s *scratch) isClean() bool {
	if n := s.br.Buffered(); n > 0 {
		p, _ := s.br.Peek(n)
		link.WarnUnasked(p, s.err)
		return false
	}
	return s.err == nil
}

// Read reads from the connection, up to the limit. An error stays, unlike that of a socket whose peer
// has reset it.
func (s *scratch) Read(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.limit <= 0 {
		return 0, errHeaderTooLong
	}
	n, err := s.c.Link.Read(p[:min(int64(len(p)), s.limit)])
	s.limit -= int64(n)
	s.err = err
	return n, err
}

var _ io.Reader = (*scratch)(nil)

// scan waits for the next answer's header, and reports whether the answer is plain. It consumes nothing.
func (s *scratch) scan(isHead bool) bool {
	for scanned := 0; ; {
		p, _ := s.br.Peek(s.br.Buffered())
		if bytes.IndexByte(p[scanned:], '\n') >= 0 {
			if v := s.answer.Scan(p, isHead); v != http1.Incomplete {
				return v == http1.Plain
			}
		}
		if scanned = len(p); scanned == s.br.Size() {
			return false
		}
		if _, err := s.br.Peek(scanned + 1); err != nil {
			return false // net/http finds it, too
		}
	}
}
