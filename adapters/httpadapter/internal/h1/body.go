package h1

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/serving"
)

// requestBody is the body of a request over HTTP/1: bytes that came with the header, and those that
// follow, for which Read waits. It holds a buffer only while there are bytes in it.
//
//	state   meaning                                    leaves by
//	open    there are bytes to come                    the last one, or the end of the stream: ended; Close
//	ended   all of them were read: next is a request   Close
//	closed  Read fails; early says that the rest of    (final)
//	        the body was left on the connection
//
// As with net/http (its type body, in Go 1.27), the body is closed before the first byte of the answer
// is sent, and Close reads up to discardMax bytes, so that the connection can serve another request.
type requestBody struct {
	// immutable
	x       *exchange
	expects bool    // the client may wait for "100 Continue" before it sends the body
	chunks  *chunks // of a body in chunks; nil: its length is known

	mu      sync.Mutex // held for a whole call, waiting included; x.mu may be taken with it
	left    []byte     // bytes that were read from the connection and not by the handler: buffer's, or the worker's
	buffer  *[]byte    // the body's own memory, of the pool; nil: none
	rest    int64      // bytes that are still on the connection
	last    bool       // the client has asked for the connection to be closed: the rest of the body is not read
	ended   bool
	closed  bool
	early   bool
	seenEnd bool  // a Read has returned the end
	looks   uint8 // see meetsLimit
	linger  bool  // the client may still be sending when the connection is closed
}

// discardMax is how many bytes are read from a body, after the handler, to keep the connection:
// net/http's maxPostHandlerReadBytes.
const discardMax = 256 << 10

// begin sets the length of the body. p was read after the header: bytes of the body, and of the next
// requests.
func (b *requestBody) begin(length int64, p []byte) {
	if b.chunks != nil {
		b.chunks.begin(b.x, p)
		return
	}
	n := int(min(length, int64(len(p))))
	b.left, b.rest = p[:n], length-int64(n)
	b.x.rest = p[n:]
}

// Read returns io.EOF with the last bytes, as net/http does.
func (b *requestBody) Read(p []byte) (n int, err error) {
	if !b.proceed() {
		return 0, http.ErrBodyReadAfterClose
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err = b.readSeen(p)
	b.x.SetTooLarge(b.meetsLimit(p, n))
	return n, err
}

// proceed sends "100 Continue" to a client that waits for it. It reports false if the body must not be
// read. mu is not held: the answer may hold its lock, and want mu.
func (b *requestBody) proceed() bool { return !b.expects || b.isClosed() || b.x.Continue() }

func (b *requestBody) isClosed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closed
}

// WriteTo implements io.WriterTo, for io.Copy.
func (b *requestBody) WriteTo(w io.Writer) (int64, error) { return http1.CopyBody(w, copied{b}) }

// copied is a body as an http1.Body.
type copied struct{ *requestBody }

func (b copied) Left() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unread()
}

func (b copied) WaitsWithoutMemory() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.ended && !b.closed && b.chunks == nil && !b.x.conn.transport().isBuffered()
}

func (b copied) ReadPooled(size int) (p *[]byte, n int, err error) {
	if !b.proceed() {
		return nil, 0, http.ErrBodyReadAfterClose
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.left) == 0 && !b.ended && !b.closed && b.chunks == nil {
		serving.Await(b.x.conn.Conn)
	}
	p = pool.GetBytes(size)
	n, err = b.readSeen(*p)
	return p, n, err
}

// readSeen is read for the handler: it records that the handler has learned of the end.
func (b *requestBody) readSeen(p []byte) (n int, err error) {
	n, err = b.read(p)
	b.seenEnd = b.seenEnd || err == io.EOF
	return n, err
}

// read is Read, with mu held.
func (b *requestBody) read(p []byte) (n int, err error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.ended:
		return 0, io.EOF
	case b.chunks != nil:
		return b.readChunks(p)
	case len(p) == 0:
		return 0, nil
	}
	if len(b.left) == 0 {
		if from := b.x.conn.transport(); len(p) >= turnBytes || int64(len(p)) >= b.rest || from.isBuffered() {
			n, err = from.receive(p[:min(int64(len(p)), b.rest)])
			return n, b.received(n, err)
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n = copy(p, b.left)
	b.left = b.left[n:]
	return n, b.atEnd()
}

// fill waits for bytes of the connection, and then takes a buffer for them, over TLS before.
func (b *requestBody) fill() error {
	b.release()
	n, err := b.x.conn.transport().fill(b)
	if n > 0 {
		b.left = (*b.buffer)[:n]
	} else {
		b.release()
	}
	return b.received(n, err)
}

func (b *requestBody) lend() []byte {
	b.buffer = pool.GetBytes(turnBytes)
	return (*b.buffer)[:min(int64(turnBytes), b.rest)]
}

func (b *requestBody) release() {
	releaseBuffer(b.buffer)
	b.buffer, b.left = nil, nil
}

// received notes the result of a read from the connection, and returns Read's error. As with net/http,
// an error means that the client has gone, and the end of the stream ends the body, too, once it was
// reported.
func (b *requestBody) received(n int, err error) error {
	b.rest -= int64(n)
	if err == nil {
		return b.atEnd()
	}
	b.x.clientGone()
	if err == io.EOF {
		b.end()
		return io.ErrUnexpectedEOF
	}
	return err
}

// atEnd returns io.EOF, and ends the body, when all of it was read.
func (b *requestBody) atEnd() error {
	if len(b.left) > 0 {
		return nil
	}
	b.release()
	if b.rest > 0 {
		return nil
	}
	b.end()
	return io.EOF
}

func (b *requestBody) end() {
	b.ended = true
	b.x.bodyEnded()
}

// Close may wait for the rest of the body, if that is short.
func (b *requestBody) Close() error {
	if b.expects && b.x.CloseUnread() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.close()
}

// close is Close with mu held. If early is set, the rest is left on the connection.
func (b *requestBody) close() (err error) {
	if b.closed {
		return nil
	}
	if b.last && b.chunks == nil && !b.ended {
		b.early = true
	}
	if !b.ended && !b.early {
		var tooLong bool
		tooLong, err = b.discard(discardMax)
		if tooLong || err != nil && !(b.ended && http1.CutOffIsEnd) {
			// The rest of the body may still come, and must not be taken for a request.
			b.early, b.linger = true, tooLong || errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
	if !b.early { // else Hijack returns what has come
		b.release()
	}
	b.closed = true
	return err
}

// discard reads the rest of the body, unless the rest is longer than max bytes.
func (b *requestBody) discard(max int64) (tooLong bool, err error) {
	switch {
	case b.ended:
		return false, nil
	case b.chunks != nil:
		return b.discardChunks(max)
	case b.unread() > max:
		return true, nil
	}
	for !b.ended && err == nil {
		if b.left = nil; b.atEnd() == nil {
			err = b.fill()
		}
	}
	return false, err
}

// unread returns how many bytes of the body the handler has not read, or -1 if that isn't known.
func (b *requestBody) unread() int64 {
	if b.chunks != nil && !b.ended {
		return -1
	}
	return int64(len(b.left)) + b.rest
}

// finish is for http1.Conn's FinishBody.
func (b *requestBody) finish(readsOn bool) (reusable, tooLong bool) {
	if readsOn && !b.mu.TryLock() {
		return false, false // a Read waits
	} else if !readsOn {
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	switch {
	case b.expects && http1.EndIsRead:
		return b.seenEnd, false
	case b.expects && !b.ended: // the client may never send it
		return false, false
	case readsOn:
		return true, false
	case b.closed: // if it was cut off, finishLate makes the worker close the connection, and the header doesn't say so
		return b.ended, false
	case b.chunks != nil:
		tooLong, err := b.discard(discardMax)
		b.linger = b.linger || tooLong
		b.closed = b.closed || !tooLong && (err == nil || !http1.CutOffIsEnd) // or the handler may read on, and finds the error
		return !tooLong && err == nil, tooLong
	case b.unread() >= discardMax: // even if it was cut off
		b.linger = true
		return false, true
	default:
		b.last = false // HTTP/1.0 may ask for the connection to be closed and kept
		if b.close() != nil && http1.CutOffIsEnd {
			b.closed = !b.ended // the handler may read on, and finds the end
			return false, false
		}
	}
	return b.ended && !b.early, false
}

// finishLate closes the body after the handler has returned and the answer was sent, and reports whether
// the connection can serve another request. A Read that still waits on another goroutine fails, as with
// net/http.
func (b *requestBody) finishLate() (reusable, linger bool) {
	b.lock()
	defer b.mu.Unlock()
	_ = b.close()
	b.release()
	tooLarge := b.x.TooLarge()
	return b.ended && !b.early && !tooLarge, b.linger || tooLarge
}

// take closes the body for a hijacker, and returns a copy of the bytes that the handler has not read.
func (b *requestBody) take() []byte {
	b.lock()
	defer b.mu.Unlock()
	left := bytes.Clone(b.left)
	if b.chunks != nil {
		left = b.chunks.takeRest()
	}
	b.release()
	b.closed = true
	return left
}

// lock locks mu. A Read that waits with mu held fails.
func (b *requestBody) lock() {
	if b.mu.TryLock() {
		return
	}
	c := b.x.conn
	_ = c.Conn.SetReadDeadline(monotime.LongAgo)
	b.mu.Lock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restoreReadDeadline()
}
