package httpstream

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
)

// A Detacher is the http.ResponseWriter of a stream, whose answer can go on after the handler has
// returned. The owner of a detached answer is told of the handler's return and of the client's end.
type Detacher interface {
	http.ResponseWriter

	// SentPlain reports whether the header was sent, and says nothing about a coding of the body.
	SentPlain() bool

	// Detach moves the rest of the answer to an Answer of o's. From then on the ResponseWriter takes
	// nothing. It fails if the handler has returned, or the answer is detached.
	Detach(o Owner) (*Answer, error)
}

// An Owner has a detached answer.
type Owner interface {
	// Work is called when the handler has returned, and for each Resume after that. It may block.
	Work()

	// Gone is called when the stream has ended early, or the handler has panicked. It must not block.
	Gone(err error)
}

// An Answer is the rest of an answer that is detached. Write, Flush and End may block.
type Answer struct {
	x    *exchange
	rest *response
}

var (
	// ErrReturned is the error of Detach when the handler has returned.
	ErrReturned = errors.New("httpadapter: Detach was called when the handler had returned")

	// ErrPanicked is what an Owner is told about a handler that has panicked, or ended its goroutine.
	ErrPanicked = errors.New("httpadapter: the handler has panicked")
)

// SentPlain implements Detacher.
func (w *response) SentPlain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && !w.hasCoding
}

// Detach implements Detacher.
func (w *response) Detach(o Owner) (*Answer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.x
	switch {
	case x.owner.Load() != nil:
		return nil, semantics.ErrDetached
	case w.done:
		return nil, ErrReturned
	}
	rest := &response{
		x: x, memory: w.memory, trailers: w.trailers, declared: w.declared, written: w.written, length: w.length,
		status: w.status, isHead: w.isHead, err: w.err, wrote: w.wrote, sent: w.sent, resets: w.resets,
		hasType: w.hasType, hasLength: w.hasLength, hasCoding: w.hasCoding, hasDate: w.hasDate, ends: w.ends,
		header: maps.Clone(w.header), // middleware may look at its own when the handler has returned
	}
	if w.sent && w.trailers == nil {
		rest.header = nil
	}
	w.memory, w.done = nil, true
	x.owner.Store(&o)
	x.stream.Detach()
	if x.stream.Err() != nil {
		o.Gone(x.stream.Err()) // before there was an owner to be told
	}
	return &Answer{x: x, rest: rest}, nil
}

// forget drops what a detached answer has of its own, when the handler has returned.
func (w *response) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.header, w.trailers = nil, nil
}

// Resume implements [h2.Resumer].
func (x *exchange) Resume() { (*x.owner.Load()).Work() }

// Host returns the server that the connection belongs to.
func (a *Answer) Host() Host { return a.x.server.Host }

// Conn returns the connection.
func (a *Answer) Conn() *h2.Conn { return a.x.stream.Conn() }

// Context returns the request's context.
func (a *Answer) Context() context.Context { return a.x.request.Context() }

// Wrote reports whether the header is fixed.
func (a *Answer) Wrote() bool { return a.rest.wrote }

// Header returns the header, for one that is not sent yet.
func (a *Answer) Header() http.Header { return a.rest.Header() }

// WriteHeader fixes the header.
func (a *Answer) WriteHeader(status int) { a.rest.WriteHeader(status) }

// Write writes a part of the body.
func (a *Answer) Write(p []byte) (int, error) { return a.rest.Write(p) }

// Flush sends what was written.
func (a *Answer) Flush() error { return a.rest.FlushError() }

// SetWriteDeadline sets the time at which the stream is reset.
func (a *Answer) SetWriteDeadline(t time.Time) error { return a.rest.SetWriteDeadline(t) }

// Resume makes a goroutine call the owner's Work.
func (a *Answer) Resume() { a.x.stream.Resume() }

// Cut resets the stream.
func (a *Answer) Cut() { a.x.stream.Reset(h2.InternalError) }

// End ends the answer behind what was written, or resets the stream. It returns an error if not all
// was sent. The request's context is cancelled.
func (a *Answer) End(complete bool) (err error) {
	x := a.x
	if complete {
		a.rest.finish()
		err = a.rest.err
	} else {
		a.rest.abort()
		a.Cut()
	}
	x.canceler.Cancel()
	x.response.notify.ended()
	x.stream.Finish()
	return err
}
