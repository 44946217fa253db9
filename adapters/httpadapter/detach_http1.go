package httpadapter

import (
	"context"
	"net/http"
	"time"

	"github.com/percore/percore/internal/accepting"
)

// http1Stream is a Stream over HTTP/1.
type http1Stream struct {
	Stream
	detachedAnswer
}

// detachHTTP1 makes the Stream of an answer over HTTP/1.
func detachHTTP1(w detacher, ctx context.Context) (*Stream, error) {
	d := new(http1Stream)
	d.sending = true // Gone may come before init
	own, err := w.Detach(&d.detachedAnswer, d)
	if err != nil {
		return nil, err
	}
	d.Stream.mu.Lock()
	defer d.Stream.mu.Unlock()
	d.init(d, join(own, ctx))
	d.wrote = d.detachedAnswer.Wrote()
	return &d.Stream, nil
}

// Work implements answerOwner: it is the sender's turn.
func (d *http1Stream) Work() (over, sent bool) {
	switch d.work() {
	case waits:
		return false, false
	case complete:
		sent = d.settle(d.End())
	}
	return true, sent
}

// Finish implements answerOwner.
func (d *http1Stream) Finish(sent bool) { d.Stream.finish(sent) }

// Gone implements answerOwner.
func (d *http1Stream) Gone(err error) bool {
	switch err {
	case nil:
		err = ErrClientGone
	case accepting.ErrShare:
		err = errShare
	}
	return d.end(err)
}

// GoesOn implements answerOwner.
func (d *http1Stream) GoesOn() bool { return d.goesOn() }

// Reads implements answerOwner.
func (d *http1Stream) Reads(reads bool) (ended bool) {
	d.Stream.mu.Lock()
	defer d.Stream.mu.Unlock()
	d.reads = reads
	return d.dead
}

// Header implements outlet.
func (d *http1Stream) Header() http.Header {
	if d.wrote {
		return nil
	}
	return d.detachedAnswer.Header()
}

// WriteHeader implements outlet.
func (d *http1Stream) WriteHeader(status int, _ bool) { d.detachedAnswer.WriteHeader(status) }

func (d *http1Stream) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		err = d.detachedAnswer.Write(p)
	}
	if err == nil && flush {
		err = d.detachedAnswer.Flush()
	}
	return err
}

// isWhole implements outlet.
func (d *http1Stream) isWhole() bool { return d.detachedAnswer.IsWhole() }

// setWriteDeadline implements outlet.
func (d *http1Stream) setWriteDeadline(t time.Time) error {
	return d.detachedAnswer.SetWriteDeadline(t)
}

func (d *http1Stream) writeTimeout() time.Duration { return d.detachedAnswer.WriteTimeout() }

func (d *http1Stream) start() { d.Resume() }

func (d *http1Stream) cut() { d.Cut() }
