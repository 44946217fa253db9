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

	// Detach moves the rest of the answer to a, which must be new, and which is o's, and returns the
	// request's context. From then on the ResponseWriter takes nothing, and the handler's return lets go
	// of it and of the request. Detach fails if the handler has returned, or the answer is detached.
	Detach(a *Answer, o Owner) (context.Context, error)
}

// An Owner has a detached answer.
type Owner interface {
	// Work is called when the handler has returned, and for each Resume after that. It may block.
	Work()

	// Gone is called when the stream has ended early, or the handler has panicked. It must not block. It
	// is not called when the answer is complete.
	Gone(err error)
}

// An Answer is the rest of an answer that is detached. Write, Flush and End may block.
type Answer struct {
	part
	owner Owner // immutable
}

// SentPlain implements Detacher.
func (w *response) SentPlain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && !w.hasCoding
}

// Detach implements Detacher.
func (w *response) Detach(a *Answer, o Owner) (context.Context, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.x
	switch {
	case x.detached.Load() != nil:
		return nil, semantics.ErrDetached
	case w.done:
		return nil, semantics.ErrReturned
	}
	a.server, a.canceler, a.owner = x.server, x.canceler, o
	a.response = response{
		x: &a.part, memory: w.memory, trailers: w.trailers, declared: w.declared, written: w.written, length: w.length,
		status: w.status, isHead: w.isHead, err: w.err, wrote: w.wrote, sent: w.sent, resets: w.resets,
		hasType: w.hasType, hasLength: w.hasLength, hasCoding: w.hasCoding, hasDate: w.hasDate, ends: w.ends,
		header: maps.Clone(w.header), // middleware may look at its own when the handler has returned
	}
	if w.sent && w.trailers == nil {
		a.response.header = nil
	}
	w.memory, w.done = nil, true
	a.response.notify.state.Store(w.notify.state.Load())
	a.detached.Store(a)
	x.stream.Move((*resumer)(a))
	x.detached.Store(a)
	if err := a.stream.Err(); err != nil {
		a.gone(err) // before there was an owner to be told
	}
	return x.req.Context(), nil
}

// resumer is an Answer as the handler of its stream.
type resumer Answer

// Stream implements [h2.StreamHandler].
func (a *resumer) Stream() *h2.Stream { return &a.stream }

// Serve implements [h2.StreamHandler]. It is not called: the exchange was served.
func (a *resumer) Serve() {}

// Cancelled implements [h2.StreamHandler].
func (a *resumer) Cancelled(err error) { a.cancelled(err) }

// Resume implements [h2.Resumer].
func (a *resumer) Resume() { a.owner.Work() }

// Host returns the server that the connection belongs to.
func (a *Answer) Host() Host { return a.server.Host }

// Conn returns the connection.
func (a *Answer) Conn() *h2.Conn { return a.stream.Conn() }

// Wrote reports whether the header is fixed.
func (a *Answer) Wrote() bool { return a.response.wrote }

// IsWhole reports whether the header is all of the answer: it is fixed and says so, or it was sent and
// answers HEAD. (Before that it may get the length of the body.)
func (a *Answer) IsWhole() bool {
	w := &a.response
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote && !semantics.BodyAllowed(int(w.status)) || w.sent && w.isHead
}

// gone tells the owner of the stream's end, unless that is this side's, behind an answer that is
// complete, for the rest of the request.
func (a *Answer) gone(err error) {
	var own *h2.StreamError
	if errors.As(err, &own) && !own.Remote && own.Code == h2.NoError {
		return
	}
	a.owner.Gone(err)
}

// Header returns the header, for one that is not sent yet.
func (a *Answer) Header() http.Header { return a.response.Header() }

// WriteHeader fixes the header.
func (a *Answer) WriteHeader(status int) { a.response.WriteHeader(status) }

// Write writes a part of the body.
func (a *Answer) Write(p []byte) (int, error) { return a.response.Write(p) }

// Flush sends what was written.
func (a *Answer) Flush() error { return a.response.FlushError() }

// SetWriteDeadline sets the time at which the stream is reset.
func (a *Answer) SetWriteDeadline(t time.Time) error { return a.response.SetWriteDeadline(t) }

// WriteTimeout returns the server's; 0: none.
func (a *Answer) WriteTimeout() time.Duration { return a.server.WriteTimeout }

// Resume makes a goroutine call the owner's Work.
func (a *Answer) Resume() { a.stream.Resume() }

// Cut resets the stream.
func (a *Answer) Cut() { a.stream.Reset(h2.InternalError) }

// End ends the answer behind what was written, or resets the stream. It returns an error if not all
// was sent. The request's context is cancelled.
func (a *Answer) End(complete bool) (err error) {
	if complete {
		a.response.finish()
		err = a.response.err
	} else {
		a.response.abort()
		a.Cut()
	}
	a.ended()
	a.stream.Finish()
	return err
}
