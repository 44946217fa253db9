package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/http1"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/seam"
)

// conn is a connection to a server. Either it is idle, and the pool owns it, or one exchange does.
type conn struct {
	// immutable
	host *host
	nc   link
	tls  *session // above nc; nil: none

	shared *shared // immutable once it was dialed; nil: it speaks HTTP/1.1

	// atomic
	ended atomic.Pointer[ending] // nil: it has not ended
	state atomic.Uint32          // see below; idle begins and ends under host.mu

	left   bool // guarded by host.mu: it is one of host.leaving, or has ended as that
	reused bool // owned by the exchange: it was idle, or is about to be

	// written before it becomes idle, read under host.mu
	since time.Time // when that was
}

// ending is how a connection has ended.
type ending struct {
	cause error // why it was cancelled; nil: it wasn't
}

var notCancelled ending

// The states of a connection. Its callback is armed before it is idle, since others wait for the lock.
//
//	from                to      by
//	busy                arming  put, before it arms the callback
//	arming              came    the callback: there may be something to read
//	arming              over    the callback, with an error
//	arming, came, over  idle    put: it is in host.idle; it notices what has come
//	arming, came, over  busy    put: a call has begun to wait, and gets it if nothing has come
//	idle                busy    a call, or what closes it: it is out of host.idle
//
// If put fails the connection is closed, whatever its state.
const (
	busy uint32 = iota // an exchange has it, or nothing if it is closed
	arming
	came
	over
	idle
)

// close closes the connection. It may be called more than once.
func (c *conn) close() { c.end(nil, true) }

// cancel closes the connection for a reason that its exchange then returns.
func (c *conn) cancel(cause error) { c.end(cause, true) }

// detach takes the connection, which goes on, from the pool.
func (c *conn) detach() {
	seam.RestoreFinalizer(c.nc)
	c.end(nil, false)
}

// end ends the connection, in the pool's view, and closes it if closes is set.
func (c *conn) end(cause error, closes bool) {
	e := &notCancelled
	if cause != nil {
		e = &ending{cause}
	}
	if !c.ended.CompareAndSwap(nil, e) {
		return
	}
	if closes {
		if c.tls != nil && cause != nil {
			_ = c.nc.SetReadDeadline(time.Unix(1, 0)) // so that the call doesn't wait for the farewell
		}
		_ = c.stream().Close()
	}
	h := c.host
	h.mu.Lock()
	if c.left {
		h.leaving--
	} else {
		h.open--
	}
	h.count.Add(countConns, -1)
	h.unlock()
}

// stream returns what requests and answers go over.
func (c *conn) stream() halfCloser {
	if c.tls != nil {
		return c.tls.conn
	}
	return c.nc
}

// shown returns what users get to see of it.
func (c *conn) shown() net.Conn {
	if c.tls != nil {
		return c.tls.conn
	}
	return shown(c.nc)
}

// tlsState returns what answers have as their TLS.
func (c *conn) tlsState() *tls.ConnectionState {
	if c.tls != nil {
		return &c.tls.state
	}
	return nil
}

// isWhole reports whether no part of a record of TLS has come.
func (c *conn) isWhole() bool { return c.tls == nil || c.tls.records.areWhole() }

func (c *conn) read(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.conn.Read(p)
	}
	return c.nc.Read(p)
}

func (c *conn) write(p []byte) (int, error) {
	if c.tls != nil {
		return c.tls.conn.Write(p)
	}
	return c.nc.Write(p)
}

// canceled returns the reason why the connection was cancelled, or nil.
func (c *conn) canceled() error {
	if e := c.ended.Load(); e != nil {
		return e.cause
	}
	return nil
}

// exchange is the use of a connection for a request and its answer.
type exchange struct {
	c      *conn
	s      *scratch
	stop   func() bool             // ends the watch of the context; nil: it never ends
	cancel context.CancelCauseFunc // nil: none
	trace  *httptrace.ClientTrace  // nil: none
	w      *writer                 // of what isn't short of the request; nil: it is sent
	alive  bool                    // the connection may be used again after the answer
}

// exchange sends the request of a call and returns the answer, whose body owns the connection until it
// has been read. If it fails the connection is closed.
func (c *conn) exchange(x *call) (resp *http.Response, err error) {
	if c.shared != nil {
		return c.openStream(x)
	}
	e := exchange{c: c, s: x.t.takeScratch(c), cancel: x.cancel, trace: x.trace}
	defer func() {
		if resp == nil { // or a hook has panicked, or ended the goroutine
			err = e.fail(err)
		}
	}()
	if x.ctx.Done() != nil {
		e.stop = watch(x.ctx, func() { c.cancel(context.Cause(x.ctx)) })
	}
	return e.do(x)
}

// fail ends an exchange without an answer, and returns what the user gets.
func (e *exchange) fail(err error) error {
	e.c.close()
	e.s.release()
	if e.stop != nil {
		e.stop()
	}
	if e.w != nil {
		e.w.expect.proceed(false)
		<-e.w.done // the user may change the request from now on
		switch failed := e.w.err.(type) {
		case nil:
		case copyError:
			err = failed.error
		case nothingWritten:
			err = failed
		default:
			err = broken(failed)
		}
	}
	if cause := e.c.canceled(); cause != nil {
		err = cause
	}
	return err
}

// watch calls end when the context ends.
func watch(ctx context.Context, end func()) (stop func() bool) {
	own, ok := ctx.Value(semantics.AfterFuncer).(interface {
		Done() <-chan struct{}
		AfterFunc(f func()) (stop func() bool)
	})
	if ok && own.Done() == ctx.Done() {
		return own.AfterFunc(end)
	}
	return context.AfterFunc(ctx, end)
}

// do sends the request and reads the answer's header.
func (e *exchange) do(x *call) (*http.Response, error) {
	s := e.s
	if err := x.append(s); err != nil {
		return nil, nothingWritten{err}
	}
	atOnce := len(s.out) <= atOnceMax
	if atOnce {
		if n, err := e.c.write(s.out); err != nil {
			if n == 0 {
				return nil, nothingWritten{err}
			}
			return nil, broken(err)
		}
	}
	timeout := x.t.base.ResponseHeaderTimeout
	if !atOnce || x.body != nil && !x.bodyRead {
		e.startWriter(x, atOnce)
	} else if timeout > 0 {
		_ = e.c.nc.SetReadDeadline(time.Now().Add(timeout))
	}
	s.limit = x.t.maxHeaderBytes()
	resp, err := e.readAnswer(x)
	switch {
	case err == nil:
	case timeout > 0 && errors.Is(s.err, os.ErrDeadlineExceeded): // err may be about what had come of a line
		return nil, errTimeout
	case s.limit <= 0:
		return nil, broken(fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", x.t.maxHeaderBytes()))
	default:
		if _, ok := err.(noAnswer); !ok {
			err = broken(err)
		}
		return nil, err
	}
	return resp, nil
}

// atOnceMax is how many bytes the caller writes: the kernel's buffer of a connection that was idle takes
// them. With more it would wait for a server that answers without having read them, and not see the
// answer, such as 431.
const atOnceMax = 16 << 10

// startWriter makes a goroutine send the rest of the request. wroteHead says that this is the body.
func (e *exchange) startWriter(x *call, wroteHead bool) {
	w := &writer{c: e.c, length: x.length, trailer: x.req.Trailer, trace: x.trace, isTunnel: x.isTunnel(), done: make(chan struct{})}
	w.header.after = x.t.base.ResponseHeaderTimeout
	if !wroteHead {
		w.head, e.s.out = e.s.out, nil // the memory is the writer's, even behind the answer
	}
	if x.body != nil && !x.bodyRead {
		x.bodyRead = true
		w.body = x.body
		if x.expects {
			w.expect.ask(x.t.base.ExpectContinueTimeout)
		}
	}
	e.w = w
	go w.run()
}

// append puts the request's bytes in s.out.
func (x *call) append(s *scratch) error {
	o := http1.Outgoing{AskForGzip: x.gzip, AskForClosing: x.closes, Trace: x.trace}
	if x.proxy != nil && x.kind&overTLS == 0 {
		o.ProxyAuthorization = proxyAuthorization(x.proxy)
	}
	if o.ContentLength = x.length; x.length < 0 && !x.isTunnel() {
		o.Trailer = x.req.Trailer
	}
	s.out = o.Append(s.out[:0], x.req, x.target)
	if x.trace != nil && x.trace.WroteHeaders != nil {
		x.trace.WroteHeaders()
	}
	var err error
	if x.body != nil {
		if x.expects || !isShort(x.body, x.length) {
			return nil // a writer sends it
		}
		s.out, err = appendShort(s.out, x.body, int(x.length))
		x.bodyRead = true
		if closeErr := x.body.Close(); err == nil {
			err = closeErr
		}
	}
	if x.trace != nil && x.trace.WroteRequest != nil {
		x.trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	return err
}

// readAnswer reads the header of the final answer, and passes those before it to the hooks.
func (e *exchange) readAnswer(x *call) (*http.Response, error) {
	s := e.s
	if _, err := s.br.Peek(1); err != nil {
		if s.limit <= 0 {
			return nil, err
		}
		return nil, noAnswer{err}
	}
	if x.trace != nil && x.trace.GotFirstResponseByte != nil {
		x.trace.GotFirstResponseByte()
	}
	for {
		isPlain := s.scan(x.req.Method == http.MethodHead)
		if x.endedInHook() {
			cause := context.Cause(x.ctx)
			e.c.cancel(cause) // what watches the context may come later
			return nil, cause
		}
		if isPlain {
			e.headerCame(x, s.answer.Close)
			return e.plainAnswer(x), nil
		}
		resp, err := http.ReadResponse(s.br, x.req)
		if err != nil {
			return nil, err
		}
		if code := resp.StatusCode; code < 100 || code > 199 || code == http.StatusSwitchingProtocols {
			e.headerCame(x, resp.Close)
			return e.otherAnswer(x, resp)
		}
		if resp.StatusCode == http.StatusContinue && e.w != nil && e.w.expect.isOpen() {
			if x.trace != nil && x.trace.Got100Continue != nil {
				x.trace.Got100Continue()
			}
			e.w.expect.proceed(true)
		}
		if x.trace != nil && x.trace.Got1xxResponse != nil {
			if err := x.trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
			s.limit = x.t.maxHeaderBytes() // the user limits their number
		}
	}
}

// headerCame ends the limits on time and size that hold until the header has come. closes says that the
// server closes the connection: a body that it was asked about is only sent if it doesn't.
func (e *exchange) headerCame(x *call, closes bool) {
	if e.w != nil {
		e.w.header.setAnswered()
		e.w.expect.proceed(!closes && !x.req.Close)
	}
	if x.t.base.ResponseHeaderTimeout > 0 {
		_ = e.c.nc.SetReadDeadline(time.Time{})
	}
	e.s.limit = math.MaxInt64
}

// reply is an answer and its body.
type reply struct {
	resp http.Response
	body body
}

// plainAnswer returns the answer that was scanned at the start of the buffer.
func (e *exchange) plainAnswer(x *call) *http.Response {
	s := e.s
	a := &s.answer
	p, _ := s.br.Peek(a.Bytes)
	e.alive = !a.Close && !x.req.Close && x.req.Method != http.MethodConnect
	if a.Body == http1.Empty {
		resp := new(http.Response)
		a.Response(p, x.req, resp)
		resp.Body, resp.TLS = http.NoBody, e.c.tlsState()
		_, _ = s.br.Discard(a.Bytes)
		e.finish(true)
		return resp
	}
	r := new(reply)
	a.Response(p, x.req, &r.resp)
	r.resp.TLS = e.c.tlsState()
	_, _ = s.br.Discard(a.Bytes)
	b := &r.body
	b.exchange, b.framing, b.left = *e, a.Body, a.ContentLength
	if a.Body == http1.Chunked {
		b.chunks, b.resp = newChunks(s.br), &r.resp
	}
	b.attach(&r.resp, x.gzip)
	return &r.resp
}

// otherAnswer returns an answer that net/http has read.
func (e *exchange) otherAnswer(x *call, resp *http.Response) (*http.Response, error) {
	resp.TLS = e.c.tlsState()
	if resp.StatusCode == http.StatusSwitchingProtocols && isUpgrade(resp.Header) {
		return e.switchProtocols(x, resp)
	}
	e.alive = !resp.Close && !x.req.Close && resp.StatusCode > 199 && x.req.Method != http.MethodConnect
	if x.req.Method == http.MethodHead || resp.ContentLength == 0 {
		e.finish(true)
		return resp, nil
	}
	b := &body{exchange: *e, framing: http1.UntilEnd, other: resp.Body, left: resp.ContentLength}
	if len(resp.TransferEncoding) > 0 {
		b.left = math.MaxInt64 // never drained: its trailers would go to the user
	}
	b.attach(resp, x.gzip)
	return resp, nil
}

// switchProtocols gives the connection to the user, as the answer's body.
func (e *exchange) switchProtocols(x *call, resp *http.Response) (*http.Response, error) {
	if e.stop != nil && !e.stop() {
		cause := context.Cause(x.ctx)
		e.c.cancel(cause) // what watches the context may come later
		return nil, cause
	}
	if e.cancel != nil {
		e.cancel(errRequestDone)
	}
	_ = e.c.nc.SetReadDeadline(time.Time{})
	e.c.detach()
	p, _ := e.s.br.Peek(e.s.br.Buffered())
	resp.Body = &switched{stream: e.c.stream(), first: append([]byte(nil), p...)}
	return resp, nil
}

// finish ends the exchange. whole says that the answer was read to its end. No read must be under way.
func (e *exchange) finish(whole bool) {
	stopped := e.stop == nil || e.stop()
	if e.cancel != nil {
		e.cancel(errRequestDone)
	}
	clean := whole && e.alive && e.s.isClean() && (e.w == nil || e.w.succeeds())
	e.s.release()
	if !clean || !stopped {
		e.c.close()
		return
	}
	err := e.c.put()
	if err != nil {
		e.c.close()
	}
	if trace := e.trace; trace != nil && trace.PutIdleConn != nil && err != errKeepAlivesDisabled {
		trace.PutIdleConn(err)
	}
}

// switched is the body of an answer that switches protocols. It first returns what was read too much.
// Unlike net/http's it has ReadFrom and WriteTo, with which io.Copy lets the kernel move the bytes
// between the two ends of a ReverseProxy, where both are percore's and without TLS.
type switched struct {
	stream halfCloser
	first  []byte
}

// halfCloser is a connection whose stream can be ended: a *percore.Conn or a *tls.Conn.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

var _ interface {
	io.ReadWriteCloser
	io.ReaderFrom
	io.WriterTo
} = (*switched)(nil)

func (b *switched) Read(p []byte) (int, error) {
	if len(b.first) > 0 {
		n := copy(p, b.first)
		b.first = b.first[n:]
		return n, nil
	}
	return b.stream.Read(p)
}

// WriteTo writes what was read too much itself, and leaves the rest to the connection.
func (b *switched) WriteTo(w io.Writer) (int64, error) {
	var first int
	if len(b.first) > 0 {
		var err error
		first, err = w.Write(b.first)
		b.first = b.first[min(max(first, 0), len(b.first)):]
		if err == nil && len(b.first) > 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return int64(first), err
		}
	}
	rest, err := io.Copy(w, b.stream)
	return int64(first) + rest, err
}

func (b *switched) ReadFrom(r io.Reader) (int64, error) { return io.Copy(b.stream, r) }
func (b *switched) Write(p []byte) (int, error)         { return b.stream.Write(p) }
func (b *switched) Close() error                        { return b.stream.Close() }
func (b *switched) CloseWrite() error                   { return b.stream.CloseWrite() }

// isTunnel reports whether the body is a stream to what the server connects to.
func (x *call) isTunnel() bool { return x.length < 0 && x.req.Method == http.MethodConnect }

// wantsClose reports whether the request asks that the connection be closed.
func wantsClose(req *http.Request) bool {
	return req.Close || http1.HasToken(semantics.First(req.Header, "Connection"), "close")
}

// isUpgrade reports whether the header of a request or an answer is about another protocol.
func isUpgrade(h http.Header) bool {
	return h.Get("Upgrade") != "" && semantics.ListsToken(h["Connection"], "upgrade")
}
