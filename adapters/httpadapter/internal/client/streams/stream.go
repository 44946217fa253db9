// Package streams sends requests over HTTP/2 and reads their answers, many at a time on a connection.
package streams

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	buffers "github.com/percore/percore/internal/pool"
)

// stream is a request over HTTP/2 and its answer. It is also the answer's body.
//
// Its parts are the answer, which the caller waits for and reads, and the upload of a body that isn't
// short. It is closed when both have ended. When one fails, or the context ends, abort ends the other:
// goroutines that wait for the server get an error, and the user sees the first reason.
type stream struct {
	s     h2.Stream
	c     *Conn
	trace *httptrace.ClientTrace // nil: none
	first sync.Once              // reports the first byte of the answer

	expects    bool  // the upload waits for an interim answer
	ignored    int64 // bytes of interim answers without a hook; owned by interim
	interimMax int64 // limits them
	resp       http.Response

	stop   func() bool     // ends the watch of the context; nil: it never ends
	ctx    context.Context // the user's
	legacy <-chan struct{} // the request's Cancel; nil: none
	upload *upload         // nil: the request has no body, or a short one; set under mu

	reading sync.Mutex // held by a read

	// guarded by reading
	left      int64 // bytes of the body that are to come; -1: that isn't known
	readErr   error // of all reads from now on, until Close
	lengthErr error // of all reads, even after Close: the body is longer or shorter than declared

	mu sync.Mutex

	// guarded by mu
	cause    error // why it was aborted; nil: it wasn't
	closed   bool  // Close was called
	answered bool  // the answer has come to its end
	uploaded bool  // the upload has ended
	finished bool  // finish was called
	refused  bool  // the answer to HEAD has a body, so a later reset of the server's says nothing

	cancel context.CancelCauseFunc // of the call; nil: none, or there is no answer yet: see adopt
}

// Do sends a request and returns the answer, whose body owns the stream. A stream is reserved for it. If
// the connection has no room nevertheless, Do returns ErrCrowded, and has done nothing.
func (c *Conn) Do(x *request.Request) (resp *http.Response, err error) {
	//lint:ignore SA1019 programs still use it
	s := &stream{c: c, trace: x.Trace, ctx: x.Req.Context(), legacy: x.Req.Cancel, interimMax: request.MaxHeaderBytes(x.Base)}
	opened := false
	defer func() {
		switch {
		case resp != nil:
		case opened: // or a hook has panicked, or ended the goroutine
			err = s.fail(err)
		default:
			c.pc.GiveBack()
		}
	}()
	if err := s.open(x); err != nil {
		return nil, err
	}
	opened = true
	if x.MayEnd() {
		s.stop = x.Watch(func() { s.abort(x.Ended(), h2.Cancel) })
	}
	if err := s.send(x); err != nil {
		return nil, err
	}
	if err := s.await(x); err != nil {
		return nil, err
	}
	s.adopt(x.Cancel)
	return &s.resp, nil
}

// adopt makes the end of the stream cancel the call's context. A call without an answer still needs it,
// to send the request again.
func (s *stream) adopt(cancel context.CancelCauseFunc) {
	s.mu.Lock()
	s.cancel = cancel
	over := s.finished
	s.mu.Unlock()
	if over && cancel != nil {
		cancel(request.ErrDone)
	}
}

// open opens the stream. The header is sent with what comes next.
func (s *stream) open(x *request.Request) error {
	c := s.c
	bare := x.Body == nil
	f := fieldLists.Get().(*fieldList)
	defer f.release()
	r := f.fill(x)
	if !c.takesFields(f.bytes) {
		return errHeaderListTooLong
	}
	if t := x.Trace; x.Expects || t != nil && (t.GotFirstResponseByte != nil || t.Got1xxResponse != nil || t.Got100Continue != nil) {
		s.s.OnInterim(func(status int, fields []h2.Field) { s.interim(status, fields) })
	}
	if x.Body != nil && !x.IsShort() {
		s.upload, s.expects = newUpload(s, x, x.Body), x.Expects // before an interim answer can come
	}
	var none context.Context // to wait with: a stream is reserved
	err := c.h2.Open(none, &s.s, &r, h2.Message{End: bare, Hold: true})
	switch {
	case err == nil:
	case errors.Is(err, h2.ErrNoQuota):
		return ErrCrowded
	case errors.Is(err, h2.ErrLeaving):
		c.pc.Leave()
		if c.h2.Err() != nil && !c.opened.Load() && c.h2.Reserved() <= 1 {
			return errSharedFailed // the last of the calls that had it
		}
		return errSharedUnusable
	default:
		return c.streamError(err)
	}
	x.BodyRead = x.Body != nil
	if !c.opened.Load() {
		c.opened.Store(true)
	}
	if x.Base.DisableKeepAlives || request.WantsClose(x.Req) {
		c.pc.Retire()
	}
	return nil
}

// send sends the header, and the body if it is short and fits the windows. Otherwise another goroutine
// sends the body, since it may have to wait, and the answer may come first.
func (s *stream) send(x *request.Request) error {
	if x.Trace != nil && x.Trace.WroteHeaders != nil {
		x.Trace.WroteHeaders()
	}
	var err error
	if s.upload == nil && x.Body != nil {
		err = s.sendShort(x)
	}
	if s.upload != nil || x.Body == nil {
		_ = s.s.Flush() // an error ends the stream, and the wait for the answer
	}
	if s.upload != nil {
		go s.upload.run()
		return nil
	}
	if x.Trace != nil && x.Trace.WroteRequest != nil {
		x.Trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	if d := x.Base.ResponseHeaderTimeout; d > 0 && err == nil {
		_ = s.s.SetAnswerDeadline(time.Now().Add(d))
	}
	return err
}

// sendShort sends a short body, or makes an upload of it if it doesn't fit the windows. It returns
// errors of reading.
func (s *stream) sendShort(x *request.Request) error {
	p := buffers.GetBytes(int(x.Length))
	defer buffers.PutBytes(p)
	var err error
	*p, err = x.AppendShort((*p)[:0])
	m := h2.Message{Body: *p, AtOnce: true}
	if err == nil {
		m.Trailers, err = s.c.trailerFields(x.Req.Trailer)
	}
	if err != nil {
		s.abort(err, h2.Cancel)
		return err
	}
	m.End = m.Trailers == nil
	if s.s.Send(m) == h2.ErrNotAtOnce { // any other error ends the stream
		u := newUpload(s, x, io.NopCloser(bytes.NewReader(bytes.Clone(*p))))
		s.mu.Lock()
		s.upload = u
		s.mu.Unlock()
	}
	return nil
}

// await waits for the answer, and makes an http.Response of it.
func (s *stream) await(x *request.Request) error {
	a, err := s.s.Answer()
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			s.abort(errSharedTimeout, h2.Cancel)
		}
		return err
	}
	s.firstByte()
	if x.EndedInHook() {
		err := x.Ended()
		s.abort(err, h2.Cancel)
		return err
	}
	if u := s.upload; u != nil {
		u.setAnswered(a.Status)
	}
	isHead := x.Req.Method == http.MethodHead
	s.fill(x, a, isHead)
	switch {
	case isHead:
		s.resp.Body = http.NoBody
		if !a.End {
			s.s.AwaitEnd(1)
			if s.s.Buffered() > 0 {
				s.s.Reset(h2.ProtocolError)
				s.mu.Lock()
				s.refused = true
				s.mu.Unlock()
			}
			if x.Ctx.Err() != nil {
				return x.Ended()
			}
		}
	case !a.End:
		s.resp.Body = s
		x.Decode(&s.resp, errSharedReads, os.ErrClosed)
		return nil
	case s.resp.ContentLength > 0:
		s.resp.Body = missingBody{}
	default:
		s.resp.Body = http.NoBody
	}
	s.endPart(&s.answered)
	return nil
}

// missingBody is the body of an answer that has declared a length, and ended with its header.
type missingBody struct{}

func (missingBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
func (missingBody) Close() error             { return nil }

// fill makes the http.Response, without its body.
func (s *stream) fill(x *request.Request, a h2.Answer, isHead bool) {
	r := &s.resp
	r.Request, r.TLS = x.Req, s.c.pc.Link.TLS()
	r.Proto, r.ProtoMajor = "HTTP/2.0", 2
	r.StatusCode, r.Status = a.Status, "200 OK"
	if a.Status != http.StatusOK {
		r.Status = strconv.Itoa(a.Status) + " " + http.StatusText(a.Status)
	}
	r.Header, r.Trailer = responseHeader(a.Fields)
	r.ContentLength = takeContentLength(r.Header)
	if r.ContentLength < 0 && a.End && !isHead {
		r.ContentLength = 0
	}
	s.left = r.ContentLength
}

// interim handles an interim answer, on the connection's goroutine.
func (s *stream) interim(status int, fields []h2.Field) {
	s.firstByte()
	if err := s.got1xx(status, fields); err != nil {
		s.abort(semantics.StreamError{StreamID: s.s.ID(), Code: h2.ProtocolError, Cause: err}, h2.ProtocolError)
		return
	}
	if t := s.trace; t != nil && status == http.StatusContinue && t.Got100Continue != nil {
		t.Got100Continue()
	}
	if status == http.StatusContinue && s.expects {
		s.upload.expect.Proceed(true)
	}
}

// got1xx passes an interim answer to the user's hook, which may limit their number, or limits their
// bytes.
func (s *stream) got1xx(status int, fields []h2.Field) error {
	if t := s.trace; t != nil && t.Got1xxResponse != nil {
		header, _ := responseHeader(fields)
		return t.Got1xxResponse(status, textproto.MIMEHeader(header))
	}
	for i := range fields {
		s.ignored += int64(fields[i].Size())
	}
	if s.ignored > s.interimMax {
		return errInterimsTooLong
	}
	return nil
}

func (s *stream) firstByte() {
	if t := s.trace; t != nil && t.GotFirstResponseByte != nil {
		s.first.Do(t.GotFirstResponseByte)
	}
}

// abort ends the stream for a reason that the user gets.
func (s *stream) abort(reason error, code h2.ErrCode) {
	early := s.s.Err() == nil // else it has ended, for another reason
	s.mu.Lock()
	u := s.upload
	if early && s.cause == nil {
		s.cause = reason
	}
	s.mu.Unlock()
	if early {
		s.s.Reset(code)
	}
	if u != nil {
		u.abandon()
	}
}

// reasonFor returns what the user gets for an error of the stream.
func (s *stream) reasonFor(err error) error { return s.causeOr(s.c.streamError(err)) }

// causeOr returns why the stream was aborted, or err if it wasn't.
func (s *stream) causeOr(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return s.cause
	}
	return err
}

// fail ends a stream without an answer, closes the request's body, and returns what the user gets.
func (s *stream) fail(err error) error {
	err = s.reasonFor(err)
	s.finish()
	if s.upload != nil {
		s.upload.abandon()
		<-s.upload.closed
	}
	return err
}

// endPart ends a part: the answer (answered) or the upload (uploaded). The last one ends the stream.
func (s *stream) endPart(ended *bool) {
	s.mu.Lock()
	*ended = true
	last := s.answered && (s.upload == nil || s.uploaded || s.upload.abandoned.Load())
	s.mu.Unlock()
	if last {
		s.finish()
	}
}

// finish ends the stream.
func (s *stream) finish() {
	s.mu.Lock()
	again, whole, refused, cancel := s.finished, s.answered, s.refused, s.cancel
	s.finished = true
	s.mu.Unlock()
	if again {
		return
	}
	if s.stop != nil {
		s.stop()
	}
	if cancel != nil {
		cancel(request.ErrDone)
	}
	if e, ok := s.s.Err().(*h2.StreamError); ok && e.Remote && e.Code == h2.ProtocolError && !refused {
		s.c.pc.Retire() // as in net/http: perhaps the server takes no more on it
	}
	if whole && s.upload != nil && !s.upload.sentAll.Load() {
		s.s.Reset(h2.NoError) // the server has answered without it
	}
	s.s.Close()
}

// Read reads the answer's body.
func (s *stream) Read(p []byte) (n int, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.lengthErr == nil && s.isClosed() {
		return 0, errSharedBodyClosed
	}
	if s.readErr != nil {
		return 0, s.readErr
	}
	n, err = s.s.Read(p)
	if s.left >= 0 {
		if int64(n) > s.left {
			n, err = int(s.left), errAnswerTooLong
			s.lengthErr = err
			s.abort(err, h2.Cancel)
		}
		s.left -= int64(n)
	}
	if err == nil {
		return n, nil
	}
	if s.readErr = s.lengthErr; s.readErr == nil {
		s.readErr = s.readError(err)
	}
	if err == io.EOF {
		s.endPart(&s.answered)
	} else {
		s.finish()
	}
	return n, s.readErr
}

// readError returns what the user gets for an error of reading.
func (s *stream) readError(err error) error {
	if err == io.EOF {
		s.takeTrailers()
		if s.left > 0 {
			s.lengthErr = io.ErrUnexpectedEOF
			return s.lengthErr
		}
		return err
	}
	if s.isClosed() {
		return errSharedBodyClosed
	}
	return s.reasonFor(err)
}

// isClosed reports whether Close was called.
func (s *stream) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// takeTrailers adds the trailers to the response.
func (s *stream) takeTrailers() {
	fields := s.s.Trailers()
	if len(fields) == 0 {
		return
	}
	if s.resp.Trailer == nil {
		s.resp.Trailer = make(http.Header, len(fields))
	}
	own := make(http.Header, len(fields))
	for i := range fields {
		key := fields[i].Name.Key()
		own[key] = append(own[key], fields[i].Value)
	}
	maps.Copy(s.resp.Trailer, own) // replaces what was declared
}

// Close ends the stream, and waits for the upload or for the end of the context. As in net/http it fails
// only if the request's Cancel is closed first.
func (s *stream) Close() error {
	s.mu.Lock()
	again, whole := s.closed, s.answered
	s.closed = true
	if s.cause == nil {
		s.cause = errSharedBodyClosed
	}
	s.mu.Unlock()
	if again {
		return nil
	}
	u := s.upload
	if u != nil {
		u.abandon()
	}
	s.finish()
	if u != nil {
		select {
		case <-u.done:
		case <-s.ctx.Done():
		case <-s.legacy:
			return request.ErrCanceled
		}
	}
	select {
	case <-s.legacy:
		if !whole {
			return request.ErrCanceled
		}
	default:
	}
	return nil
}
