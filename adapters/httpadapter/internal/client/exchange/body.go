package exchange

import (
	"bufio"
	"bytes"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	buffers "github.com/percore/percore/internal/pool"
)

// body is the body of an answer. It owns the exchange until it has been read to its end, or closed.
//
// Reads wait for each other. Close doesn't wait for a read, but makes it fail, and leaves the buffer to
// the collector.
type body struct {
	framing http1.Framing

	// guarded by reading
	exchange
	left int64     // bytes that are to come, if Counted; at first, if net/http reads the body
	src  io.Reader // what the body is read from: the buffer, chunks in it, or net/http's body
	resp *http.Response

	reading sync.Mutex // held by a read

	mu     sync.Mutex
	busy   bool  // a read is under way
	closed bool  // Close was called
	err    error // a read has failed with, or io.EOF
}

// attach makes b the body of an answer.
func (b *body) attach(resp *http.Response, x *request.Request) {
	resp.Body = b
	x.Decode(resp, errConcurrentRead, errReadOnClosedBody)
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (n int, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if err := b.begin(); err != nil {
		return 0, err
	}
	n, err = b.read(p)
	return n, b.end(err)
}

// WriteTo implements io.WriterTo, for io.Copy.
func (b *body) WriteTo(w io.Writer) (int64, error) { return http1.CopyBody(w, copied{b}) }

// copied is a body as an http1.Body.
type copied struct{ *body }

// Left implements http1.Body.
func (b copied) Left() int64 {
	b.reading.Lock()
	defer b.reading.Unlock()
	if b.framing != http1.Counted {
		return -1
	}
	return b.left
}

// WaitsWithoutMemory implements http1.Body.
func (b copied) WaitsWithoutMemory() bool {
	b.reading.Lock()
	defer b.reading.Unlock()
	return b.c != nil && !b.c.Link.IsTLS()
}

// ReadPooled implements http1.Body.
func (b copied) ReadPooled(size int) (p *[]byte, n int, err error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	if err := b.begin(); err != nil {
		return nil, 0, err
	}
	if b.s.br.Buffered() == 0 && b.s.err == nil {
		b.c.Link.Await()
	}
	p = buffers.GetBytes(size)
	n, err = b.read(*p)
	return p, n, b.end(err)
}

// begin begins a read, unless there is nothing to read.
func (b *body) begin() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errReadOnClosedBody
	}
	b.busy = b.err == nil
	return b.err
}

// end ends a read, and the exchange if the read has failed or found the end, unless Close ends that. It
// returns the error for the user.
func (b *body) end(err error) error {
	b.mu.Lock()
	b.busy, b.err = false, err
	closed := b.closed
	b.mu.Unlock()
	if err == nil || closed {
		return err
	}
	c := b.c
	b.finish(err == io.EOF)
	b.exchange, b.src = exchange{}, nil
	if err != io.EOF {
		if cause := c.Canceled(); cause != nil {
			return cause
		}
	}
	return err
}

// read reads from the connection. A Counted body returns io.EOF with the last bytes, so that most users
// don't have to read once more.
func (b *body) read(p []byte) (int, error) {
	if b.framing == http1.Counted && int64(len(p)) > b.left {
		p = p[:b.left]
	}
	n, err := b.src.Read(p)
	switch b.framing {
	case http1.Counted:
		b.left -= int64(n)
		if err == nil && b.left == 0 {
			err = io.EOF
		} else if err == io.EOF && b.left > 0 {
			err = io.ErrUnexpectedEOF
		}
	case http1.Chunked:
		if err == io.EOF {
			err = b.readTrailer()
		}
	}
	return n, err
}

// Close implements io.Closer. A body that was not read to its end ends the connection, unless draining
// it takes little.
func (b *body) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil
	}
	b.closed = true
	switch {
	case b.err != nil:
	case request.Drains && (b.busy && b.alive || b.mayDrain()) && (b.stop == nil || b.stop()):
		b.stop = nil // the context no longer counts: programs often end it next
		go b.drain() // behind a read that is under way: only that knows what is left
	case b.busy:
		b.c.Close() // the read fails
		b.unwatch()
	default:
		b.finish(false)
	}
	return nil
}

// Limits of draining a body that was closed early: net/http's.
const (
	drainBytesMax = 256 << 10
	drainTime     = 50 * time.Millisecond
)

// mayDrain reports whether the rest of the answer may be short.
func (b *body) mayDrain() bool { return b.alive && b.left <= drainBytesMax }

// drain reads the rest of a body that its user has closed. It waits for a read that is under way.
func (b *body) drain() {
	l := &b.c.Link
	_ = l.SetReadDeadline(time.Now().Add(drainTime))
	b.reading.Lock()
	defer b.reading.Unlock()
	b.resp = nil
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err == nil && b.mayDrain() {
		_, err = io.CopyN(io.Discard, readFunc(b.read), drainBytesMax+1)
	}
	_ = l.SetReadDeadline(time.Time{})
	b.finish(err == io.EOF)
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// readTrailer reads what follows the last chunk, and returns io.EOF if that is valid. net/http parses
// trailers, behind an empty body.
func (b *body) readTrailer() error {
	br := b.s.br
	if p, _ := br.Peek(2); string(p) == "\r\n" {
		_, _ = br.Discard(2)
		return io.EOF
	}
	const lastChunk = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
	unread, _ := br.Peek(br.Buffered())
	from := io.MultiReader(strings.NewReader(lastChunk), bytes.NewReader(unread), b.s) // not br, which would read ahead
	b.s.br = bufio.NewReaderSize(from, br.Size())                                      // isClean looks there
	resp, err := http.ReadResponse(b.s.br, nil)
	if err != nil {
		return err
	}
	_, err = io.ReadFull(resp.Body, make([]byte, 1))
	switch {
	case err != io.EOF || b.resp == nil:
	case b.resp.Trailer == nil:
		b.resp.Trailer = resp.Trailer
	default:
		maps.Copy(b.resp.Trailer, resp.Trailer)
	}
	return err
}
