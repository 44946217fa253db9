package httpadapter

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// exchange is a request of the fast path and its answer: the http.ResponseWriter that the handler
// gets. Handlers may keep it, the request, and all that they can reach from these, so an exchange is
// never used for a second request. Its memory has no bytes of the connection's buffers, except,
// while the handler runs, those of the body and of the requests that follow.
type exchange struct {
	http1.Response

	// immutable
	conn       *conn
	req        *http.Request
	cancelFunc context.CancelFunc // cancels the context, if its parent can be cancelled; else nil
	ctx        requestContext

	message http1.Message
	body    requestBody

	// owned by the worker
	returned bool // the handler has returned, and neither panicked nor ended its goroutine

	mu          sync.Mutex
	rest        []byte    // bytes behind the request that were read, for Hijack
	gone        bool      // the client has left
	closeNotify chan bool // made by CloseNotify
	hijacked    bool
	dated       bool // the handler has set the write deadline
	rearmed     bool // the callback has come once, and was armed again
	ended       bool // the handler has returned
}

// Exchanges with memory for the values of a request's fields: as many as most programs send, and as
// browsers do.
type (
	exchangeOfFew struct {
		exchange
		values [fieldsFew]string
	}
	exchangeOfMany struct {
		exchange
		values [fieldsMany]string
	}
)

const (
	fieldsFew  = 3
	fieldsMany = 12
)

// allocExchange returns an exchange and memory for the values of that many fields, if they are not more
// than fieldsMany.
func allocExchange(fields int) (*exchange, []string) {
	if fields <= fieldsFew {
		x := new(exchangeOfFew)
		return &x.exchange, x.values[:]
	}
	x := new(exchangeOfMany)
	return &x.exchange, x.values[:]
}

// newExchange makes the exchange of the request at the start of p, whose head was scanned and whose
// body is in p, too. It returns nil if the request is net/http's to refuse.
func (c *conn) newExchange(h *http1.Head, p []byte) *exchange {
	x, values := allocExchange(h.Fields - 1)
	x.conn = c
	ctx, cancel := x.context()
	x.cancelFunc = cancel
	req, ok := h.Request(ctx, p, &x.message, values)
	if !ok {
		x.cancel()
		return nil
	}
	end := h.Bytes + int(h.ContentLength)
	req.RemoteAddr = c.remoteText()
	req.TLS = c.tlsState()
	if h.ContentLength > 0 {
		x.body.left = p[h.Bytes:end]
		req.Body = &x.body
	}
	x.req, x.rest = req, p[end:]
	if req.TLS == nil {
		x.Init((*wire)(x), req, nil)
	} else {
		x.Init(tlsWire{(*wire)(x)}, req, nil)
	}
	return x
}

// run calls the handler. Unless that has returned afterwards the connection is of no more use: the
// handler has panicked, or ended its goroutine.
func (x *exchange) run(handler http.Handler) {
	defer func() {
		if x.returned {
			return
		}
		x.Abort()
		if reason := recover(); reason != nil {
			x.conn.queue.server.logPanic(x.conn, reason)
		}
	}()
	handler.ServeHTTP(x, x.req)
	x.returned = true
}

// cancel cancels the request's context.
func (x *exchange) cancel() {
	if x.cancelFunc != nil {
		x.cancelFunc()
		return
	}
	x.ctx.cancel()
}

// leave tells the handler that the client has left, unless it has hijacked the connection. It runs on
// the loop, so no call that may block is made with mu held.
func (x *exchange) leave() {
	x.mu.Lock()
	hijacked := x.hijacked
	if !hijacked && !x.gone {
		x.gone = true
		if x.closeNotify != nil {
			x.closeNotify <- true // has room
		}
	}
	x.mu.Unlock()
	if !hijacked {
		x.cancel()
	}
}

// rearm arms the callback again when it has come for the first time, and reports whether it did. The
// first may be about bytes that this request was read with. While the handler runs no bytes are read,
// so the second is about others, or the end.
func (x *exchange) rearm() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rearmed || x.ended || x.hijacked {
		return false
	}
	x.rearmed = true
	return x.conn.Conn.NotifyReadable((*waker)(x.conn)) == nil
}

// end takes the connection's bytes away from the handler, which has returned. It reports whether the
// handler has hijacked the connection, and whether it has set the write deadline.
func (x *exchange) end() (hijacked, dated bool) {
	x.cancel()
	x.body.end()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended, x.rest = true, nil
	return x.hijacked, x.dated
}

// CloseNotify implements http.CloseNotifier.
func (x *exchange) CloseNotify() <-chan bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.ended {
		panic("net/http: CloseNotify called after ServeHTTP finished")
	}
	if x.closeNotify == nil {
		x.closeNotify = make(chan bool, 1)
		if x.gone {
			x.closeNotify <- true
		}
	}
	return x.closeNotify
}

// Hijack implements http.Hijacker.
func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	read, err := x.seize()
	if err != nil {
		return nil, nil, err
	}
	x.Response.End()
	c := x.conn
	c.Conn.CancelOnReadable()
	var peeked [1]byte
	read = append(read, peeked[:c.takePeeked(peeked[:])]...)
	nc := c.identity()
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(read), nc), max(len(read), readBytes))
	_, _ = r.Peek(len(read)) // so that they are buffered, and r reads from nc afterwards
	_ = nc.SetDeadline(time.Time{})
	c.hijacked()
	c.queue.server.tell(nc, http.StateHijacked)
	return nc, bufio.NewReadWriter(r, bufio.NewWriter(nc)), nil
}

// seize takes the connection from its worker, which leaves it alone when the handler has returned,
// and returns the bytes that were read and not used.
func (x *exchange) seize() (read []byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		panic("net/http: Hijack called after ServeHTTP finished")
	case x.hijacked:
		return nil, http.ErrHijacked
	}
	x.hijacked = true
	return append(x.body.take(), x.rest...), nil
}

// SetReadDeadline is for http.ResponseController.
func (x *exchange) SetReadDeadline(t time.Time) error { return x.conn.SetReadDeadline(t) }

// SetWriteDeadline is for http.ResponseController.
func (x *exchange) SetWriteDeadline(t time.Time) error {
	x.mu.Lock()
	x.dated = true
	x.mu.Unlock()
	return x.conn.SetWriteDeadline(t)
}

// EnableFullDuplex is for http.ResponseController.
func (x *exchange) EnableFullDuplex() error {
	x.Response.EnableFullDuplex()
	return nil
}

// requestBody is the body of a request that has come whole, with its header. Its bytes are the
// connection's until the handler has returned, or the answer has begun.
type requestBody struct {
	mu    sync.Mutex
	left  []byte
	ended bool
}

// Read implements io.Reader. As with net/http, the last bytes come with io.EOF.
func (b *requestBody) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return 0, http.ErrBodyReadAfterClose
	}
	n = copy(p, b.left)
	b.left = b.left[n:]
	if len(b.left) == 0 && (n > 0 || len(p) > 0) {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *requestBody) Close() error {
	b.end()
	return nil
}

// end lets go of the bytes.
func (b *requestBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left, b.ended = nil, true
}

// take returns a copy of the bytes that were not read, and ends the body.
func (b *requestBody) take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := bytes.Clone(b.left)
	b.left, b.ended = nil, true
	return left
}

// wire is an exchange as the connection of its http1.Response.
type wire exchange

// Write implements http1.Conn. As with net/http, a handler whose client can't be written to finds its
// context cancelled, which is all that a stream's handler may look at.
func (w *wire) Write(p []byte) (int, error) {
	n, err := w.conn.write(p)
	if err != nil {
		(*exchange)(w).cancel()
	}
	return n, err
}

// ReadFrom implements io.ReaderFrom: files go by sendfile.
func (w *wire) ReadFrom(r io.Reader) (int64, error) { return w.conn.Conn.ReadFrom(r) }

// KeepAlives implements http1.Conn.
func (w *wire) KeepAlives() bool { return w.conn.queue.call.keepsAlive() }

// FinishBody implements http1.Conn. The body is there already. A handler that has met the limit of an
// http.MaxBytesReader has the connection closed, which net/http is told by a method of its own
// ResponseWriter's.
func (w *wire) FinishBody() (reusable, tooLong bool) {
	w.body.end()
	return !(*exchange)(w).hitLimit(), false
}

// maxBytesReader is the type of the readers that http.MaxBytesReader makes.
var maxBytesReader = reflect.TypeOf(http.MaxBytesReader(nil, http.NoBody, 0))

// hitLimit reports whether the handler has put an http.MaxBytesReader into the request, and that has
// met its limit: then each Read, even of no bytes, says so.
func (x *exchange) hitLimit() bool {
	if reflect.TypeOf(x.req.Body) != maxBytesReader {
		return false
	}
	var tooLarge *http.MaxBytesError
	_, err := x.req.Body.Read(nil)
	return errors.As(err, &tooLarge)
}

// AppendDate implements http1.Conn.
func (w *wire) AppendDate(b []byte) []byte { return date.Append(b, time.Now()) }

// date is shared by all servers.
var date http1.Date

// Logf implements http1.Conn.
func (w *wire) Logf(format string, args ...any) { w.conn.queue.server.logf(format, args...) }
