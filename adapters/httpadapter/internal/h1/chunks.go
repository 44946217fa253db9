package h1

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"os"
	"slices"
	"sync"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// chunks is where a body in chunks comes from. net/http decides its framing: httputil's reader of
// chunks is its own, and trailers are read by the Body of http.ReadRequest. Both read through a
// chunkReader, where the bytes behind the body are found when it has ended. The fields are guarded by
// the requestBody's mu.
type chunks struct {
	body       io.Reader        // the chunks
	r          *chunkReader     // what body reads from; nil: given back
	discarding io.LimitedReader // see discardChunks
}

// chunkReader is a bufio.Reader of net/http's size, which decides how long a line and the trailers may
// be.
type chunkReader struct {
	bufio.Reader
	source chunkSource
}

// chunkReaders has those of which nothing is used any more.
var chunkReaders = sync.Pool{New: func() any {
	r := new(chunkReader)
	r.Reader = *bufio.NewReader(&r.source)
	return r
}}

// newChunkReader returns a reader of p and of what comes on x's connection behind that. It keeps nothing
// of p.
func newChunkReader(x *exchange, p []byte) *chunkReader {
	r := chunkReaders.Get().(*chunkReader)
	r.source = chunkSource{left: p, x: x}
	if len(p) > 0 {
		_, _ = r.Peek(1) // takes a worker's buffer whole
		r.source.left = bytes.Clone(r.source.left)
	}
	return r
}

// unread returns a copy of the bytes that were read from the connection, and not from r.
func (r *chunkReader) unread() []byte {
	buffered, _ := r.Peek(r.Buffered())
	return slices.Concat(buffered, r.source.left)
}

func (r *chunkReader) release() {
	r.source = chunkSource{}
	r.Reset(&r.source)
	chunkReaders.Put(r)
}

// chunkSource gives the bytes that were read with a header, and then those of the connection.
type chunkSource struct {
	left []byte
	x    *exchange
}

// Read implements io.Reader.
func (s *chunkSource) Read(p []byte) (n int, err error) {
	if len(s.left) > 0 {
		n = copy(p, s.left)
		s.left = s.left[n:]
		return n, nil
	}
	n, err = s.x.conn.stream().receive(p)
	if err != nil {
		s.x.clientGone()
	}
	return n, err
}

// begin begins a body of which p was read with the header.
func (c *chunks) begin(x *exchange, p []byte) {
	c.r = newChunkReader(x, p)
	c.body = httputil.NewChunkedReader(&c.r.Reader)
}

// readChunks is Read, with mu held. A trailer that is wrong closes the body, as with net/http.
func (b *requestBody) readChunks(p []byte) (n int, err error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose // what it was read from may be given back
	}
	n, err = b.chunks.body.Read(p)
	if err == io.EOF {
		if err = b.readTrailers(); err == io.EOF {
			b.end()
		} else {
			b.closed, b.early = true, true
		}
	}
	return n, err
}

// readTrailers reads what is behind the last chunk. It returns io.EOF if that is right.
func (b *requestBody) readTrailers() error {
	const end = "\r\n"
	c := b.chunks
	if p, _ := c.r.Peek(len(end)); string(p) == end {
		_, _ = c.r.Discard(len(end))
		return io.EOF
	}
	const lastChunk = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
	r := newChunkReader(b.x, append([]byte(lastChunk), c.r.unread()...))
	c.r.release()
	c.r = r
	parsed, err := http.ReadRequest(&r.Reader)
	if err != nil {
		return err
	}
	if _, err = io.ReadFull(parsed.Body, make([]byte, 1)); err != io.EOF {
		return err
	}
	if tooManyTrailers(parsed.Trailer, b.x.conn.server().FieldsMax) {
		return errTrailers
	}
	if req := b.x.req; req.Trailer == nil {
		req.Trailer = parsed.Trailer
	} else {
		maps.Copy(req.Trailer, parsed.Trailer) // to those that were announced
	}
	return io.EOF
}

// tooManyTrailers reports whether trailers have more than linesMax lines.
func tooManyTrailers(trailers http.Header, linesMax int) bool {
	n := 0
	for _, values := range trailers {
		n += len(values)
	}
	return n > linesMax
}

// errTrailers is net/http's error since Go 1.27.
var errTrailers = errors.New("message too large")

// discardChunks reads up to max bytes of the rest. It returns io.EOF at the end of the body, and nil if
// there is more.
func (b *requestBody) discardChunks(max int64) error {
	if b.ended {
		return io.EOF
	}
	rest := &b.chunks.discarding // no memory for each request
	*rest = io.LimitedReader{R: lockedChunks{b}, N: max}
	_, err := io.Copy(io.Discard, rest)
	if err == nil && rest.N > 0 {
		err = io.EOF
	}
	return err
}

// lockedChunks is a body whose mu is held.
type lockedChunks struct{ b *requestBody }

func (l lockedChunks) Read(p []byte) (int, error) { return l.b.readChunks(p) }

// closeChunks is close.
func (b *requestBody) closeChunks() error {
	if b.early { // the rest is left on the connection
		b.closed = true
		return nil
	}
	err := b.discardChunks(discardMax + 1)
	switch err {
	case io.EOF:
		err = nil
	default:
		b.early, b.linger = true, err == nil || errors.Is(err, os.ErrDeadlineExceeded)
	}
	b.closed = true
	return err
}

// finishChunks is finish.
func (b *requestBody) finishChunks() (reusable, tooLong bool) {
	switch b.discardChunks(discardMax + 1) {
	case nil:
		b.linger = true
		return false, true
	case io.EOF:
		b.closed = true
		return true, false
	}
	b.closed = b.closed || !http1.CutOffIsEnd // or the handler may read on, and finds the error
	return false, false
}

// takeRest returns a copy of the bytes behind the body, or behind what was read of it. The body must not
// be read any more.
func (c *chunks) takeRest() []byte {
	if c.r == nil {
		return nil
	}
	p := c.r.unread()
	c.r.release()
	c.r, c.body = nil, nil
	return p
}

// takeBehind returns the bytes behind a body in chunks, which is closed. Those behind any other are in
// rest.
func (x *exchange) takeBehind() []byte {
	if x.body == nil || x.body.chunks == nil {
		return nil
	}
	x.body.mu.Lock()
	defer x.body.mu.Unlock()
	return x.body.chunks.takeRest()
}
