package httpstream

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// emptyBody is the body of all requests without one. It is a type of its own, as in net/http, where
// such a body differs from the one that HTTP/1 has.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// body is a request's body.
type body struct {
	x         *exchange
	open      bool // the request has a body
	continues bool // the client waits for 100 Continue before it sends

	mu sync.Mutex // held for a whole Read

	// guarded by mu
	got   int64
	ended bool

	closed atomic.Bool
}

// The errors of a body, worded as in net/http.
var (
	errClosedBody   = errors.New("body closed by handler")
	errDisconnected = errors.New("client disconnected")
	errReturned     = errors.New("http2: request body closed due to handler exiting")
)

func (b *body) Read(p []byte) (n int, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.continues {
		b.continues = false
		if !b.x.response.informed.Load() {
			_ = b.x.current().stream.Send(h2.Message{Status: http.StatusContinue})
		}
	}
	if !b.open || b.ended {
		return 0, io.EOF
	}
	if b.closed.Load() {
		return 0, errClosedBody
	}
	n, err = b.x.current().stream.Read(p)
	b.got += int64(n)
	return n, b.errorOf(err)
}

// errorOf returns net/http's error for an error of h2.
func (b *body) errorOf(err error) error {
	switch err {
	case nil:
		return nil
	case io.EOF:
		return b.end()
	}
	return b.failure(err) // elsewhere, since its variables are allocated
}

// failure is errorOf for errors that are none of a complete body.
func (b *body) failure(err error) error {
	var reset *h2.StreamError
	var gone *h2.ConnError
	switch {
	case errors.Is(err, h2.ErrShortBody):
		return fmt.Errorf("request declared a Content-Length of %d but only wrote %d bytes", b.x.request.ContentLength, b.got)
	case err == h2.ErrLongBody:
		return fmt.Errorf("sender tried to send more than declared Content-Length of %d bytes", b.x.request.ContentLength)
	case b.closed.Load():
		return errClosedBody
	case errors.As(err, &reset):
		return semantics.StreamError{StreamID: reset.ID, Code: reset.Code, Cause: reset.Err}
	case errors.As(err, &gone):
		return errDisconnected
	case err == h2.ErrEnded:
		return errReturned
	}
	return err
}

// end sets the trailers that the request has declared.
func (b *body) end() error {
	b.ended = true
	r := b.x.request
	if r.Trailer == nil {
		return io.EOF // net/http doesn't look at what comes
	}
	for _, f := range b.x.current().stream.Trailers() {
		key := f.Name.Key()
		if !semantics.MayBeTrailer(key) {
			b.x.current().stream.Reset(h2.ProtocolError)
			return semantics.StreamError{StreamID: b.x.stream.ID(), Code: h2.ProtocolError}
		}
		if _, declared := r.Trailer[key]; declared {
			r.Trailer[key] = append(r.Trailer[key], f.Value)
		}
	}
	return io.EOF
}

// Close drops the rest of the body.
func (b *body) Close() error {
	if !b.closed.Swap(true) && b.open {
		b.x.current().stream.CloseRead()
	}
	return nil
}
