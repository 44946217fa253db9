package h1

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// chunks is the source of a body in chunks. net/http decides the framing: httputil's reader of chunks is
// net/http's own, and the Body of http.ReadRequest reads the trailers. Both read through an
// http1.Reader, which has the bytes that follow the body. The requestBody's mu guards the fields.
type chunks struct {
	body       io.Reader        // the chunks
	r          *http1.Reader    // what body reads from; nil: given back
	discarding io.LimitedReader // see discardChunks
}

// begin is requestBody.begin.
func (c *chunks) begin(x *exchange, p []byte) {
	c.r = http1.NewReader("", p, (*chunkSource)(x))
	c.body = httputil.NewChunkedReader(&c.r.Reader)
}

// chunkSource is an exchange as the connection that chunks are read from.
type chunkSource exchange

func (s *chunkSource) Read(p []byte) (n int, err error) {
	n, err = s.conn.transport().receive(p)
	if err != nil {
		s.clientGone()
	}
	return n, err
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

// readTrailers reads the trailers after the last chunk. It returns io.EOF if they are valid.
func (b *requestBody) readTrailers() error {
	const end = "\r\n"
	c := b.chunks
	if p, _ := c.r.Peek(len(end)); string(p) == end {
		_, _ = c.r.Discard(len(end))
		return io.EOF
	}
	const lastChunk = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
	r := http1.NewReader(lastChunk, c.r.Unread(), (*chunkSource)(b.x))
	c.r.Release()
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

// discardChunks is discard.
func (b *requestBody) discardChunks(max int64) (tooLong bool, err error) {
	rest := &b.chunks.discarding // no memory for each request
	*rest = io.LimitedReader{R: lockedChunks{b}, N: max + 1}
	_, err = io.Copy(io.Discard, rest)
	return err == nil && rest.N == 0, err
}

// lockedChunks is a body whose mu is held.
type lockedChunks struct{ b *requestBody }

func (l lockedChunks) Read(p []byte) (int, error) { return l.b.readChunks(p) }

// takeRest returns a copy of the bytes after what was read of the body, which must not be read any more.
func (c *chunks) takeRest() []byte {
	if c.r == nil {
		return nil
	}
	p := c.r.Unread()
	c.r.Release()
	c.r, c.body = nil, nil
	return p
}

// takeBehind returns the bytes after a closed body in chunks. Those after any other body are in rest.
func (x *exchange) takeBehind() []byte {
	if x.body == nil || x.body.chunks == nil {
		return nil
	}
	x.body.mu.Lock()
	defer x.body.mu.Unlock()
	return x.body.chunks.takeRest()
}
