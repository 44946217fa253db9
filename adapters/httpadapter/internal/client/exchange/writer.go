package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
)

// writer sends a body that isn't short, or a whole request with a long header, on a goroutine of its
// own, since the answer may come before all of it is sent.
type writer struct {
	// immutable
	c       *pool.Conn
	head    []byte                 // what comes before the body, if it isn't sent yet
	body    io.ReadCloser          // nil: none, or it is in head
	length  int64                  // below 0: it goes in chunks, unless it is of a tunnel
	trailer http.Header            // what follows the chunks; the user may set values until the body is closed
	trace   *httptrace.ClientTrace // nil: none

	isTunnel bool // the body goes as it is, behind the header of a CONNECT

	expect request.Asking // the exchange proceeds

	headerTimeout time.Duration // how long the caller waits for the answer then; 0: without limit

	mu       sync.Mutex
	answered bool // guarded by mu: the answer's header has come

	done chan struct{} // closed at the end
	err  error         // valid then
}

// reuseWait is how long the end of an answer waits for the end of its request, as in net/http.
const reuseWait = 50 * time.Millisecond

// run sends what there is. If that fails, the caller's wait for the answer ends, too: the connection is
// broken, or run closes it.
func (w *writer) run() {
	defer close(w.done)
	w.err = request.ErrBodyUnread // unless a read of the body ends the goroutine
	broken, err := w.sendHead()
	if w.body != nil {
		if err == nil {
			broken, err = w.sendBody()
		} else {
			w.body.Close()
		}
		if w.trace != nil && w.trace.WroteRequest != nil {
			w.trace.WroteRequest(httptrace.WroteRequestInfo{Err: Plain(err)})
		}
	}
	w.err = err
	switch {
	case err == nil:
		w.limitWait()
	case !broken || !isHangup(err): // else the caller may still find an answer
		w.c.Close()
	}
}

// limitWait makes the caller wait for the answer no longer than the timeout, unless it has come: then
// the deadline is the body's.
func (w *writer) limitWait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.headerTimeout > 0 && !w.answered {
		_ = w.c.Link.SetReadDeadline(time.Now().Add(w.headerTimeout))
	}
}

// sendHead sends what comes before the body. broken says that writing has failed.
func (w *writer) sendHead() (broken bool, err error) {
	if w.head == nil {
		return false, nil
	}
	n, err := w.c.Link.Write(w.head)
	if err != nil && n == 0 {
		err = NothingWritten{err}
	}
	return err != nil, err
}

// sendBody sends the body, if the server wants it, and closes it. broken says that writing has failed.
func (w *writer) sendBody() (broken bool, err error) {
	sends := w.expect.Await(w.trace)
	if sends {
		broken, err = w.send()
	}
	if closeErr := w.body.Close(); sends && err == nil {
		err = closeErr
	}
	if sends && err == nil && w.length < 0 && !w.isTunnel {
		err = w.endChunks()
	}
	return broken, err
}

// isHangup reports whether a write has failed because the connection has ended. Then reading finds the
// end, too. After any other error, such as ENOBUFS, both sides might wait for each other.
func isHangup(err error) bool {
	return errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}

// send copies the body. broken says that writing has failed.
func (w *writer) send() (broken bool, err error) {
	if w.length < 0 && !w.isTunnel {
		cw := chunkWriter{c: w.c}
		if err := copyChunks(&cw, w.body); err != nil {
			return cw.broken, copyError{err}
		}
		return false, nil
	}
	if m := request.MemoryOf(w.body); m != nil && int64(m.Len()) == w.length {
		if _, err := m.WriteTo(w.c.Link.Stream()); err != nil {
			return true, copyError{err}
		}
		return false, nil
	}
	src := &source{r: w.body}
	var r io.Reader = src
	f, isFile := request.FileOf(w.body)
	if isFile {
		r = f
	}
	if !w.isTunnel {
		r = io.LimitReader(r, w.length)
	}
	n, err := w.c.Link.ReadFrom(r)
	if err != nil {
		return !isFile && src.err == nil, copyError{err}
	}
	if w.isTunnel {
		return false, nil
	}
	more, err := io.Copy(io.Discard, w.body)
	if err != nil {
		return false, copyError{err}
	}
	if n += more; n != w.length {
		return false, fmt.Errorf("http: ContentLength=%d with Body length %d", w.length, n)
	}
	return false, nil
}

// copyChunks is io.Copy, with memory that may serve others.
func copyChunks(w io.Writer, body io.Reader) error {
	if all, ok := body.(io.WriterTo); ok && !request.KeepsNothing(body) {
		_, err := all.WriteTo(w)
		return err
	}
	p, release := request.ReadMemory(body, request.PieceBytes)
	defer release()
	_, err := io.CopyBuffer(w, struct{ io.Reader }{body}, p)
	return err
}

// endChunks sends the last chunk and the trailers.
func (w *writer) endChunks() error {
	b := bytes.NewBufferString("0\r\n")
	if err := w.trailer.Write(b); err != nil {
		return err
	}
	b.Write(crlf)
	_, err := w.c.Link.Write(b.Bytes())
	return err
}

// succeeds reports whether all of the body is sent. It waits for a moment.
func (w *writer) succeeds() bool {
	select {
	case <-w.done:
		return w.err == nil
	default:
	}
	timer := time.NewTimer(reuseWait)
	defer timer.Stop()
	select {
	case <-w.done:
		return w.err == nil
	case <-timer.C:
		return false
	}
}

// source remembers whether reading has failed.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != io.EOF {
		s.err = err
	}
	return n, err
}

// chunkWriter writes each piece as a chunk.
type chunkWriter struct {
	c      *pool.Conn
	broken bool // writing has failed

	size   [20]byte
	pieces [3][]byte
	all    []byte // over TLS: the pieces
}

func (w *chunkWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil // it would end the body
	}
	size := append(strconv.AppendInt(w.size[:0], int64(len(p)), 16), "\r\n"...)
	if err := w.write(size, p); err != nil {
		w.broken = true
		return 0, err
	}
	return len(p), nil
}

func (w *chunkWriter) write(size, p []byte) error {
	if w.c.Link.IsTLS() { // one record, if possible
		w.all = append(append(append(w.all[:0], size...), p...), crlf...)
		_, err := w.c.Link.Write(w.all)
		return err
	}
	w.pieces = [3][]byte{size, p, crlf}
	v := net.Buffers(w.pieces[:])
	_, err := w.c.Link.WriteBuffers(&v)
	w.pieces = [3][]byte{}
	return asWrite(err)
}

// asWrite makes an error of writev say write, as net/http's errors do.
func asWrite(err error) error {
	op, ok := err.(*net.OpError)
	if !ok || op.Op != "writev" {
		return err
	}
	if call, ok := op.Err.(*os.SyscallError); ok && call.Syscall == "writev" {
		op.Err = os.NewSyscallError("write", call.Err)
	}
	op.Op = "write"
	return op
}

var crlf = []byte("\r\n")
