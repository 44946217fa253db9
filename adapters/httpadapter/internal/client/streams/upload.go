package streams

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
)

// upload sends a body that isn't short, or doesn't fit the windows, on a goroutine of its own.
//
// It is abandoned, and the body closed, when the stream ends early or the answer says that the body
// isn't wanted. The goroutine may still be reading from the body then.
type upload struct {
	// immutable
	s       *stream
	body    io.ReadCloser
	length  int64       // -1: unknown
	trailer http.Header // the user may set values until the body has been read

	headerTimeout time.Duration // from the end of the body on; 0: none

	expect request.Asking

	closing   sync.Once
	closed    chan struct{} // closed when the body is
	abandoned atomic.Bool
	sentAll   atomic.Bool

	done chan struct{} // closed at the end
}

// newUpload makes the upload of body, which is x's or has what was read from that.
func newUpload(s *stream, x *request.Request, body io.ReadCloser) *upload {
	u := &upload{
		s: s, body: body, length: x.Length, trailer: x.Req.Trailer, headerTimeout: x.Base.ResponseHeaderTimeout,
		closed: make(chan struct{}), done: make(chan struct{}),
	}
	if x.Expects && x.Base.ExpectContinueTimeout > 0 {
		u.expect.Ask(x.Base.ExpectContinueTimeout)
	}
	return u
}

// run sends the body.
func (u *upload) run() {
	defer close(u.done)
	err := errUploadAbandoned
	if u.expect.Await(u.s.trace) && !u.abandoned.Load() {
		err = u.send()
	}
	_, isSend := err.(sendError)
	switch abandoned := u.abandoned.Load(); {
	case err == nil && !abandoned:
		u.sentAll.Store(true)
		if d := u.headerTimeout; d > 0 {
			_ = u.s.s.SetAnswerDeadline(time.Now().Add(d))
		}
	case err != nil && !abandoned && !isSend:
		u.s.abort(err, h2.Cancel)
	}
	if t := u.s.trace; t != nil && t.WroteRequest != nil {
		t.WroteRequest(httptrace.WroteRequestInfo{Err: u.errorFor(err)})
	}
	u.close()
	u.s.endPart(&u.s.uploaded)
}

// errorFor returns what the hook gets for an error of the upload: why it was abandoned, or what the call
// gets.
func (u *upload) errorFor(err error) error {
	failed, isSend := err.(sendError)
	switch {
	case err == nil:
		return nil
	case u.abandoned.Load():
		return u.s.causeOr(errUploadAbandoned)
	case isSend:
		return u.s.reasonFor(failed.error)
	}
	return err
}

// sendError is an error of sending, which the wait for the answer gets as well.
type sendError struct{ error }

// send copies the body to the stream.
func (u *upload) send() error {
	if m := request.MemoryOf(u.body); m != nil && int64(m.Len()) == u.length && u.trailer == nil {
		_, err := m.WriteTo(wholeBody{u})
		return err
	}
	size := int64(request.PieceBytes)
	if u.length >= 0 {
		size = min(size, u.length+1)
	}
	p, release := request.ReadMemory(u.body, int(size))
	defer release()
	left := u.length
	for {
		n, err := u.read(p, &left)
		if err != nil && (err != io.EOF || u.abandoned.Load()) {
			return err // after abandon the end may come from closing the body
		}
		m := h2.Message{Body: p[:n]}
		if err == io.EOF {
			var tooLong error
			if m.Trailers, tooLong = u.s.c.trailerFields(u.trailer); tooLong != nil {
				return tooLong
			}
			m.End = m.Trailers == nil
		}
		if n > 0 || err == io.EOF {
			if err := u.s.s.Send(m); err != nil {
				return sendError{err}
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}

// read reads a piece of the body, and its end with the last one if the length is known.
func (u *upload) read(p []byte, left *int64) (n int, err error) {
	n, err = u.body.Read(p)
	if u.length < 0 {
		return n, err
	}
	if *left -= int64(n); *left == 0 && err == nil {
		var more [1]byte
		var m int
		m, err = u.body.Read(more[:])
		*left -= int64(m)
	}
	if *left < 0 {
		err = errBodyTooLong
	}
	return n, err
}

// wholeBody sends a body that is in memory.
type wholeBody struct{ u *upload }

func (w wholeBody) Write(p []byte) (int, error) {
	if err := w.u.s.s.Send(h2.Message{Body: p, End: int64(len(p)) == w.u.length}); err != nil {
		return 0, sendError{err}
	}
	return len(p), nil
}

// setAnswered is called when the answer's header has come. As in net/http, an error or a redirect says
// that the body isn't wanted.
func (u *upload) setAnswered(status int) {
	if status > 299 {
		u.abandon()
	}
}

// abandon sends no more of the body, and closes it. It doesn't wait.
func (u *upload) abandon() {
	if !u.abandoned.Swap(true) {
		u.expect.Proceed(false)
		go u.close()
	}
}

// close closes the body.
func (u *upload) close() {
	u.closing.Do(func() {
		u.body.Close()
		close(u.closed)
	})
}
