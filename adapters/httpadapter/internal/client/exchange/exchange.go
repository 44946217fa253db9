// Package exchange sends requests over HTTP/1.1 and reads their answers, one at a time on a connection.
package exchange

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"os"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/link"
	"github.com/percore/percore/adapters/httpadapter/internal/client/pool"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

// exchange is the use of a connection for a request and its answer.
type exchange struct {
	c      *pool.Conn
	s      *scratch
	stop   func() bool             // ends the watch of the context; nil: it never ends
	cancel context.CancelCauseFunc // nil: none
	trace  *httptrace.ClientTrace  // nil: none
	w      *writer                 // sends the rest of the request; nil: all of it is sent
	alive  bool                    // the connection may be used again after the answer
}

// Do sends a request and returns the answer, whose body owns the connection until it has been read or
// closed. If Do fails, it closes the connection.
func Do(c *pool.Conn, x *request.Request) (resp *http.Response, err error) {
	e := exchange{c: c, s: takeScratch(c, x.Base), cancel: x.Cancel, trace: x.Trace}
	defer func() {
		if resp == nil { // or a hook has panicked, or ended the goroutine
			err = e.fail(err)
		}
	}()
	if x.MayEnd() {
		e.stop = x.Watch(func() { c.Cancel(context.Cause(x.Ctx)) })
	}
	return e.do(x)
}

// fail ends an exchange without an answer, and returns what the user gets.
func (e *exchange) fail(err error) error {
	e.c.Close()
	e.s.release()
	if e.stop != nil {
		e.stop()
	}
	if e.w != nil {
		e.w.expect.Proceed(false)
		<-e.w.done // then the user may change the request
		switch failed := e.w.err.(type) {
		case nil:
		case copyError:
			err = failed.error
		case NothingWritten:
			err = failed
		default:
			err = broken(failed)
		}
	}
	if cause := e.c.Canceled(); cause != nil {
		err = cause
	}
	return err
}

// do sends the request and reads the answer's header.
func (e *exchange) do(x *request.Request) (*http.Response, error) {
	s := e.s
	if err := appendRequest(s, x); err != nil {
		return nil, NothingWritten{err}
	}
	atOnce := len(s.out) <= atOnceMax
	if atOnce {
		if n, err := e.c.Link.Write(s.out); err != nil {
			if n == 0 {
				return nil, NothingWritten{err}
			}
			return nil, broken(err)
		}
	}
	timeout := x.Base.ResponseHeaderTimeout
	if !atOnce || x.Body != nil && !x.BodyRead {
		e.startWriter(x, atOnce)
	} else if timeout > 0 {
		_ = e.c.Link.SetReadDeadline(time.Now().Add(timeout))
	}
	s.limit = request.MaxHeaderBytes(x.Base)
	resp, err := e.readAnswer(x)
	switch {
	case err == nil:
	case timeout > 0 && errors.Is(s.err, os.ErrDeadlineExceeded): // err may be about the part of a line that had come
		return nil, errTimeout
	case s.limit <= 0:
		return nil, broken(fmt.Errorf("net/http: server response headers exceeded %d bytes; aborted", request.MaxHeaderBytes(x.Base)))
	default:
		if _, ok := err.(NoAnswer); !ok {
			err = broken(err)
		}
		return nil, err
	}
	return resp, nil
}

// atOnceMax is how many bytes the caller itself writes: the kernel's buffer of an idle connection takes
// them at once. A caller that had to wait in a write would not see the answer, such as 431, of a server
// that doesn't read the request.
const atOnceMax = 16 << 10

// startWriter makes a goroutine send the rest of the request: the body alone if wroteHead is set.
func (e *exchange) startWriter(x *request.Request, wroteHead bool) {
	w := &writer{c: e.c, length: x.Length, trailer: x.Req.Trailer, trace: x.Trace, isTunnel: x.IsTunnel(),
		headerTimeout: x.Base.ResponseHeaderTimeout, done: make(chan struct{})}
	if !wroteHead {
		w.head, e.s.out = e.s.out, nil // the writer may need the memory longer than the answer does
	}
	if x.Body != nil && !x.BodyRead {
		x.BodyRead = true
		w.body = x.Body
		if x.Expects {
			w.expect.Ask(x.Base.ExpectContinueTimeout)
		}
	}
	e.w = w
	go w.run()
}

// appendRequest puts the request's bytes in s.out.
func appendRequest(s *scratch, x *request.Request) error {
	x.Probe()
	o := http1.Outgoing{AskForGzip: x.Gzip, AskForClosing: x.Closes, ProxyAuthorization: x.ProxyAuth, Trace: x.Trace}
	if o.ContentLength = x.Length; x.Length < 0 && !x.IsTunnel() {
		o.Trailer = x.Req.Trailer
	}
	s.out = o.Append(s.out[:0], x.Req, x.Target)
	if x.Trace != nil && x.Trace.WroteHeaders != nil {
		x.Trace.WroteHeaders()
	}
	var err error
	if x.Body != nil {
		if !x.IsShort() {
			return nil // a writer sends it
		}
		s.out, err = x.AppendShort(s.out)
	}
	if x.Trace != nil && x.Trace.WroteRequest != nil {
		x.Trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	return err
}

// readAnswer reads the header of the final answer, and passes interim answers to the hooks.
func (e *exchange) readAnswer(x *request.Request) (*http.Response, error) {
	s := e.s
	if _, err := s.br.Peek(1); err != nil {
		if s.limit <= 0 {
			return nil, err
		}
		return nil, NoAnswer{err}
	}
	if x.Trace != nil && x.Trace.GotFirstResponseByte != nil {
		x.Trace.GotFirstResponseByte()
	}
	for {
		isPlain := s.scan(x.Req.Method == http.MethodHead)
		if x.EndedInHook() {
			cause := context.Cause(x.Ctx)
			e.c.Cancel(cause) // what watches the context may come later
			return nil, cause
		}
		if isPlain {
			e.headerCame(x, s.answer.Close)
			return e.plainAnswer(x), nil
		}
		resp, err := http.ReadResponse(s.br, x.Req)
		if err != nil {
			return nil, err
		}
		if code := resp.StatusCode; code < 100 || code > 199 || code == http.StatusSwitchingProtocols {
			e.headerCame(x, resp.Close)
			return e.otherAnswer(x, resp)
		}
		if resp.StatusCode == http.StatusContinue && e.w != nil && e.w.expect.IsOpen() {
			if x.Trace != nil && x.Trace.Got100Continue != nil {
				x.Trace.Got100Continue()
			}
			e.w.expect.Proceed(true)
		}
		if x.Trace != nil && x.Trace.Got1xxResponse != nil {
			if err := x.Trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
				return nil, err
			}
			s.limit = request.MaxHeaderBytes(x.Base) // the user limits their number
		}
	}
}

// headerCame ends the limits on the header's time and size. closes says that the server closes the
// connection: then a body that waits for the server's consent is not sent.
func (e *exchange) headerCame(x *request.Request, closes bool) {
	if e.w != nil {
		e.w.mu.Lock()
		e.w.answered = true
		e.w.mu.Unlock()
		e.w.expect.Proceed(!closes && !x.Req.Close)
	}
	if x.Base.ResponseHeaderTimeout > 0 {
		_ = e.c.Link.SetReadDeadline(time.Time{})
	}
	e.s.limit = math.MaxInt64
}

// reply is an answer and its body.
type reply struct {
	resp http.Response
	body body
}

// plainAnswer returns the answer that scan has found at the start of the buffer.
func (e *exchange) plainAnswer(x *request.Request) *http.Response {
	s := e.s
	a := &s.answer
	p, _ := s.br.Peek(a.Bytes)
	e.alive = !a.Close && !x.Req.Close && x.Req.Method != http.MethodConnect
	if a.Body == http1.Empty {
		resp := new(http.Response)
		a.Response(p, x.Req, resp)
		resp.Body, resp.TLS = http.NoBody, e.c.Link.TLS()
		_, _ = s.br.Discard(a.Bytes)
		e.finish(true)
		return resp
	}
	r := new(reply)
	a.Response(p, x.Req, &r.resp)
	r.resp.TLS = e.c.Link.TLS()
	_, _ = s.br.Discard(a.Bytes)
	b := &r.body
	b.exchange, b.framing, b.left, b.src = *e, a.Body, a.ContentLength, s.br
	if a.Body == http1.Chunked {
		b.src, b.resp = httputil.NewChunkedReader(s.br), &r.resp
	}
	b.attach(&r.resp, x)
	return &r.resp
}

// otherAnswer returns an answer that net/http has read.
func (e *exchange) otherAnswer(x *request.Request, resp *http.Response) (*http.Response, error) {
	resp.TLS = e.c.Link.TLS()
	if resp.StatusCode == http.StatusSwitchingProtocols && request.IsUpgrade(resp.Header) {
		return e.switchProtocols(x, resp)
	}
	e.alive = !resp.Close && !x.Req.Close && resp.StatusCode > 199 && x.Req.Method != http.MethodConnect
	if x.Req.Method == http.MethodHead || resp.ContentLength == 0 {
		e.finish(true)
		return resp, nil
	}
	b := &body{exchange: *e, framing: http1.UntilEnd, src: resp.Body, left: resp.ContentLength}
	if len(resp.TransferEncoding) > 0 {
		b.left = math.MaxInt64 // never drained: its trailers would go to the user
	}
	b.attach(resp, x)
	return resp, nil
}

// switchProtocols gives the connection to the user, as the answer's body.
func (e *exchange) switchProtocols(x *request.Request, resp *http.Response) (*http.Response, error) {
	if !e.unwatch() {
		cause := context.Cause(x.Ctx)
		e.c.Cancel(cause) // what watches the context may come later
		return nil, cause
	}
	_ = e.c.Link.SetReadDeadline(time.Time{})
	e.c.Detach()
	p, _ := e.s.br.Peek(e.s.br.Buffered())
	resp.Body = &switched{stream: e.c.Link.Stream(), first: *bytes.NewReader(bytes.Clone(p))}
	return resp, nil
}

// finish ends the exchange, while no read is under way. whole says that the answer was read to its end.
func (e *exchange) finish(whole bool) {
	stopped := e.unwatch()
	clean := whole && e.alive && e.s.isClean() && (e.w == nil || e.w.succeeds())
	e.s.release()
	if !clean || !stopped {
		e.c.Close()
		return
	}
	err := e.c.Put()
	if trace := e.trace; trace != nil && trace.PutIdleConn != nil && err != pool.ErrKeepAlivesDisabled {
		trace.PutIdleConn(err)
	}
}

// unwatch ends the watch of the context, and the call's own context. It reports false if the context has
// ended first.
func (e *exchange) unwatch() bool {
	stopped := e.stop == nil || e.stop()
	if e.cancel != nil {
		e.cancel(request.ErrDone)
	}
	return stopped
}

// switched is the body of an answer that switches protocols. It begins with what was read too much.
// Unlike net/http's it has ReadFrom and WriteTo, with which io.Copy lets the kernel move the bytes of a
// ReverseProxy if both connections are percore's and without TLS.
type switched struct {
	stream link.Stream
	first  bytes.Reader
}

var _ interface {
	io.ReadWriteCloser
	io.ReaderFrom
	io.WriterTo
} = (*switched)(nil)

func (b *switched) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	return b.stream.Read(p)
}

func (b *switched) WriteTo(w io.Writer) (int64, error) {
	first, err := b.first.WriteTo(w)
	if err != nil {
		return first, err
	}
	rest, err := io.Copy(w, b.stream)
	return first + rest, err
}

func (b *switched) ReadFrom(r io.Reader) (int64, error) { return io.Copy(b.stream, r) }
func (b *switched) Write(p []byte) (int, error)         { return b.stream.Write(p) }
func (b *switched) Close() error                        { return b.stream.Close() }
func (b *switched) CloseWrite() error                   { return b.stream.CloseWrite() }
