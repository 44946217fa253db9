package h1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/seam"
)

// exchange is a request over HTTP/1 and its answer: the http.ResponseWriter that the handler gets.
// Handlers may keep it and all that they can reach from it, so an exchange is never used for a second
// request. It has no bytes of the connection's buffers, except, while the handler runs, those of the
// body and of the requests that follow.
type exchange struct {
	http1.Response
	watched

	// immutable
	req  *http.Request
	body *requestBody // nil: none

	rest []byte // was read after the request, for Hijack; guarded by mu

	// owned by the worker
	returned bool // the handler has returned, and neither panicked nor ended its goroutine
	stays    bool // Drain does not end the connection with this answer
}

// allocExchange makes an exchange, its blank request, and its body if there is one, in one allocation.
// It also returns the context for the request.
func (c *Conn) allocExchange(length int64) (x *exchange, ctx context.Context) {
	type plain struct {
		exchange
		request http.Request
	}
	var m *plain
	switch {
	case length == 0:
		m = new(plain)
	case length > 0:
		with := new(struct {
			plain
			body requestBody
		})
		m, with.exchange.body = &with.plain, &with.body
	default:
		with := new(struct {
			plain
			body   requestBody
			chunks chunks
		})
		m, with.exchange.body, with.body.chunks = &with.plain, &with.body, &with.chunks
	}
	x = &m.exchange
	x.conn, x.req = c, &m.request
	ctx, x.canceler = newRequestContext(c.Context(), c.Conn)
	return x, ctx
}

// watched is the part of an exchange that waits for the client's end. A detached answer has its own once
// the handler has returned: see Answer.
type watched struct {
	// immutable
	conn     *Conn
	canceler semantics.Canceler // of the context

	mu          sync.Mutex
	detached    *Answer   // nil: the answer is not detached
	closeNotify chan bool // made by CloseNotify
	gone        bool      // the client has gone
	hijacked    bool
	watching    bool // the body, if any, was read: the callback is armed, unless it has come
	rearmed     bool // the callback has come once, and was armed again
	ended       bool // the handler has returned
}

// init completes an exchange whose request has its header. behind was read after that. looks says that
// the request may be HTTP/1.0, or have fields that plain HTTP/1.1 doesn't have.
func (x *exchange) init(behind []byte, looks bool) {
	req, from := x.req, x.conn.transport()
	req.RemoteAddr = x.conn.RemoteText()
	req.TLS = from.tlsState()
	continues := false
	if looks {
		continues, _ = http1.ExpectsContinue(req)
		x.InitOdd(from.answerOut(x), req, continues)
	} else {
		x.Init(from.answerOut(x), req)
	}
	if x.body == nil {
		x.rest, x.watching = behind, true
		return
	}
	x.body.x, x.body.last, x.body.expects = x, req.Close, continues
	req.Body = x.body
	x.body.begin(req.ContentLength, behind)
}

// awaitsBody reports whether a part of the body has not come with the header. It is for the time before
// the handler runs.
func (x *exchange) awaitsBody() bool {
	return x.body != nil && (x.body.rest > 0 || x.body.chunks != nil)
}

// bodyEnded begins to watch for the client's end once the body was read, as net/http does, even if all
// of it came with the header. Before that neither the end of the client's stream nor the deadline for
// the body cancels a handler.
func (x *exchange) bodyEnded() {
	c := x.conn
	x.mu.Lock()
	if x.watching || x.ended || x.hijacked {
		x.mu.Unlock()
		return
	}
	x.watching = true
	c.setRealDeadline(0) // as net/http does then
	c.change(connState.resumeServing)
	err := c.armCallback()
	x.mu.Unlock()
	if err != nil {
		(*waker)(c).OnReadable(err)
	}
	if c.transport().hasEnded() {
		x.clientGone()
	}
}

// run calls the handler. If that panics or ends its goroutine, returned stays false, and the connection
// can't be used again.
func (x *exchange) run(handler http.Handler) {
	defer func() {
		if x.returned {
			return
		}
		x.Abort()
		if reason := recover(); reason != nil {
			x.conn.logPanic(reason)
		}
	}()
	handler.ServeHTTP(x, x.req)
	x.returned = true
}

func (x *watched) isWatching() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.isWatchingLocked()
}

func (x *watched) isWatchingLocked() bool { return x.watching && !x.ended && !x.hijacked }

// notice takes a callback that came during x, with its error, and reports whether the callback is armed
// again. It runs on the loop.
//
//	the callback is about     net/http's read of one byte   the context
//	bytes after the request   returns, and is the last      stays
//	the end of the stream     fails                         is cancelled
//	a deadline                fails                         is cancelled
//	nothing (see rearm)       goes on                       stays, and the callback is armed again
func (x *watched) notice(err error) (armed bool) {
	switch {
	case !x.isWatching():
		return false // it was armed before x, and has come too late to be disarmed
	case err != nil || seam.AtEnd(x.conn.Conn):
		x.clientGone()
		return false
	}
	return x.rearm()
}

// clientGone tells the handler that the client has gone, unless it has hijacked the connection. It may
// run on the loop, so it makes no call that may block.
func (x *watched) clientGone() {
	x.mu.Lock()
	hijacked, detached := x.hijacked, x.detached
	if !hijacked && !x.gone {
		x.gone = true
		if x.closeNotify != nil {
			select {
			case x.closeNotify <- true:
			default: // the other watched of a detached answer was told at the same time
			}
		}
	}
	x.mu.Unlock()
	if !hijacked {
		x.canceler.Cancel()
	}
	if detached != nil {
		detached.owner.Gone(nil)
	}
}

// rearm arms the callback again when it has come for the first time, and reports whether it did. The
// first may be about bytes that were read with this request. While the handler runs nothing is read, so
// the second is about bytes that follow, or the end.
func (x *watched) rearm() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.rearmed || !x.isWatchingLocked() {
		return false
	}
	err := x.conn.Conn.NotifyReadable((*waker)(x.conn))
	if errors.Is(err, loop.ErrArmed) {
		return true // by bodyEnded: this callback was armed before x
	}
	x.rearmed = true
	return err == nil
}

// end notes that the handler has returned, and reports whether it has hijacked the connection, and
// whether the callback was armed. The caller closes the body. If the handler has detached the answer,
// end only returns that.
func (x *exchange) end() (hijacked, watching bool, detached *Answer) {
	x.mu.Lock()
	if x.detached != nil && x.returned {
		defer x.mu.Unlock()
		return false, false, x.detached
	}
	x.ended, x.rest = true, nil
	hijacked, watching = x.hijacked, x.watching
	x.mu.Unlock()
	x.canceler.Cancel()
	return hijacked, watching, nil
}

// closeBody closes the body after the answer was sent. It reports whether the body lets the connection
// serve another request, and whether the client may still be sending, so that the connection must
// linger.
func (x *exchange) closeBody() (reusable, linger bool) {
	if x.body == nil {
		return true, false
	}
	return x.body.finishLate()
}

// dropBody is for a handler that has hijacked the connection and returned. Its Hijack, on another
// goroutine, may not have come to the body yet, which has bytes of the worker's buffer.
func (x *exchange) dropBody() {
	if x.body != nil {
		x.body.take()
	}
}

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

func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	x.Response.EndHeader() // it reads the rest of the body
	read, err := x.seize()
	if err != nil {
		return nil, nil, err
	}
	x.Response.End()
	c := x.conn
	c.Conn.CancelOnReadable()
	if b, ok := c.transport().takePeeked(); ok {
		read = append(read, b)
	}
	nc := c.Identity()
	r := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(read), nc), max(len(read), turnBytes))
	_, _ = r.Peek(len(read)) // so that they are buffered, and r reads from nc afterwards
	_ = nc.SetDeadline(time.Time{})
	c.hijacked()
	c.Report(http.StateHijacked)
	return nc, bufio.NewReadWriter(r, bufio.NewWriter(nc)), nil
}

// seize takes the connection from its worker, and returns the bytes that were read and not used.
func (x *exchange) seize() (read []byte, err error) {
	rest, err := x.markHijacked()
	if err != nil {
		return nil, err
	}
	if x.body != nil {
		read = x.body.take()
	}
	return append(read, rest...), nil
}

// markHijacked notes that the handler has the connection, and returns the bytes after the request.
func (x *exchange) markHijacked() (rest []byte, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		panic("net/http: Hijack called after ServeHTTP finished")
	case x.detached != nil:
		return nil, semantics.ErrDetached
	case x.hijacked:
		return nil, http.ErrHijacked
	}
	x.hijacked = true
	return bytes.Clone(x.rest), nil
}

func (x *exchange) SetReadDeadline(t time.Time) error { return (*netConn)(x.conn).SetReadDeadline(t) }

func (x *exchange) SetWriteDeadline(t time.Time) error {
	return x.conn.SetWriteDeadline(t)
}

func (x *exchange) EnableFullDuplex() error {
	x.Response.EnableFullDuplex()
	return nil
}
