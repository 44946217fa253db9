package h1

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
)

// chunks is where a body in chunks comes from: the Body of http.ReadRequest, which decides its framing
// and sets the trailers. It reads through an oddReader, where the bytes behind the body are found when
// it has ended. The fields are guarded by the requestBody's mu.
type chunks struct {
	req         *http.Request // whose trailers body sets
	body        io.Reader
	r           *oddReader // what body reads from; nil: given back
	trailersMax int
	discarding  io.LimitedReader // see discardChunks
}

// readChunks is Read, with mu held.
func (b *requestBody) readChunks(p []byte) (n int, err error) {
	n, err = b.chunks.body.Read(p)
	if err != io.EOF {
		return n, err
	}
	if b.chunks.hasTooManyTrailers() {
		b.closed, b.early = true, true
		return n, errTrailers
	}
	b.end()
	return n, io.EOF
}

func (c *chunks) hasTooManyTrailers() bool {
	n := 0
	for _, values := range c.req.Trailer {
		n += len(values)
	}
	return n > c.trailersMax
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
	case http.ErrBodyReadAfterClose: // its trailer was wrong, of which a Read has told
		b.early, err = true, nil
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
	b.closed = !cutOffIsEnd // or the handler may read on, and finds the error
	return false, false
}

// takeRest returns a copy of the bytes behind the body, or behind what was read of it. The body must not
// be read any more.
func (c *chunks) takeRest() []byte {
	if c.r == nil {
		return nil
	}
	buffered, _ := c.r.Peek(c.r.Buffered())
	p := slices.Concat(buffered, c.r.source.left)
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
