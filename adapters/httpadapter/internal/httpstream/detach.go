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

// An Answer is the rest of an answer that is detached. Write, Flush and Finish may block.
type Answer struct {
	part
	owner   semantics.Owner // immutable
	counted bool            // by the Host; owned by the sender
}

func (w *response) SentPlain() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent && !w.hasCoding
}

func (w *response) Detach(a *Answer, o semantics.Owner) (ctx context.Context, wrote bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	x := w.x
	switch {
	case x.detached.Load() != nil:
		return nil, false, semantics.ErrDetached
	case w.done:
		return nil, false, semantics.ErrReturned
	}
	a.server, a.canceler, a.owner = x.server, x.canceler, o
	a.response.x, a.response.status, a.response.isHead, a.response.progress = &a.part, w.status, w.isHead, w.progress
	a.response.header = maps.Clone(w.header) // middleware may look at its own when the handler has returned
	if w.sent && w.trailers == nil {
		a.response.header = nil
	}
	w.memory, w.done = nil, true
	a.detached.Store(a)
	x.stream.Move(a)
	x.detached.Store(a)
	if err := a.stream.Err(); err != nil {
		a.gone(err) // before there was an owner to be told
	}
	return x.ctx, w.wrote, nil
}

// Serve is not called: the exchange was served.
func (a *Answer) Serve() {}

// Resume implements [h2.Resumer]. It makes the owner send what is to be sent, and notes the end.
func (a *Answer) Resume() {
	a.count(1)
	over, sent := a.owner.Work()
	if !over {
		return
	}
	a.count(-1)
	defer func() {
		if reason := recover(); reason != nil {
			a.logPanic(reason)
		}
	}()
	a.owner.Finish(sent)
}

// count counts the answer among the server's, or out.
func (a *Answer) count(by int64) {
	if a.counted != (by > 0) {
		a.counted = by > 0
		a.server.Host.CountDetached(by)
	}
}

// IsComplete reports whether the header is all of the answer: it is fixed and says so, or it was sent
// and answers HEAD. (Before that it may get the length of the body.)
func (a *Answer) IsComplete() bool {
	w := &a.response
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wrote && !semantics.BodyAllowed(int(w.status)) || w.sent && w.isHead
}

// gone tells the owner of the stream's end, unless this side has ended it, after a complete answer, for
// the rest of the request.
func (a *Answer) gone(err error) {
	var own *h2.StreamError
	if errors.As(err, &own) && !own.Remote && own.Code == h2.NoError {
		return
	}
	a.owner.Gone(err)
}

// Header returns the header, for one that is not sent yet, and nil for one that is fixed: the sender may
// have the lock.
func (a *Answer) Header(wrote bool) http.Header {
	if wrote {
		return nil
	}
	return a.response.Header()
}

// WriteHeader fixes the header.
func (a *Answer) WriteHeader(status int, _ bool) { a.response.WriteHeader(status) }

// Write writes a part of the body.
func (a *Answer) Write(p []byte) error {
	_, err := a.response.Write(p)
	return err
}

// Flush sends what was written.
func (a *Answer) Flush() error { return a.response.FlushError() }

// SetWriteDeadline sets the time at which the stream is reset.
func (a *Answer) SetWriteDeadline(t time.Time) error { return a.response.SetWriteDeadline(t) }

// WriteTimeout returns the server's; 0: none.
func (a *Answer) WriteTimeout() time.Duration { return a.server.HTTP.WriteTimeout }

// Start makes a goroutine call the owner's Work.
func (a *Answer) Start() { a.stream.Resume() }

// Cut resets the stream. It doesn't block.
func (a *Answer) Cut() { go a.stream.Reset(h2.InternalError) }

// Finish ends the answer after what was written, or resets the stream. It returns an error if not all
// was sent. The request's context is cancelled.
func (a *Answer) Finish(complete bool) (err error) {
	if complete {
		a.response.finish()
		err = a.response.err
	} else {
		a.response.abort()
		a.stream.Reset(h2.InternalError)
	}
	a.canceler.Cancel()
	a.stream.Finish()
	return err
}
