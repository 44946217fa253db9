package httpadapter

import (
	"context"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/accepting"
)

// http1Stream is a Stream over HTTP/1.
type http1Stream struct {
	Stream
	h1.Answer
}

// detachHTTP1 makes the Stream of an answer over HTTP/1.
func detachHTTP1(w h1.Detacher, ctx context.Context) (*Stream, error) {
	d := new(http1Stream)
	d.sending = true // Gone may come before init
	own, err := w.Detach(&d.Answer, d)
	if err != nil {
		return nil, err
	}
	d.Stream.mu.Lock()
	defer d.Stream.mu.Unlock()
	d.init(d, join(own, ctx))
	d.wrote = d.Answer.Wrote()
	return &d.Stream, nil
}

// Work implements h1.Owner: it is the sender's turn.
func (d *http1Stream) Work() (over, sent bool) {
	switch d.work() {
	case waits:
		return false, false
	case complete:
		sent = d.settle(d.End())
	}
	return true, sent
}

// Finish implements h1.Owner.
func (d *http1Stream) Finish(sent bool) { d.Stream.finish(sent) }

// Gone implements h1.Owner.
func (d *http1Stream) Gone(err error) bool {
	switch err {
	case nil:
		err = ErrClientGone
	case accepting.ErrShare:
		err = errShare
	}
	return d.end(err)
}

// GoesOn implements h1.Owner.
func (d *http1Stream) GoesOn() bool { return d.goesOn() }

// Reads implements h1.Owner.
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
	return d.Answer.Header()
}

// WriteHeader implements outlet.
func (d *http1Stream) WriteHeader(status int, _ bool) { d.Answer.WriteHeader(status) }

func (d *http1Stream) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		err = d.Answer.Write(p)
	}
	if err == nil && flush {
		err = d.Answer.Flush()
	}
	return err
}

// isWhole implements outlet.
func (d *http1Stream) isWhole() bool { return d.Answer.IsWhole() }

// setWriteDeadline implements outlet.
func (d *http1Stream) setWriteDeadline(t time.Time) error {
	return d.Answer.SetWriteDeadline(t)
}

func (d *http1Stream) writeTimeout() time.Duration { return d.Answer.WriteTimeout() }

func (d *http1Stream) start() { d.Resume() }

func (d *http1Stream) cut() { d.Cut() }
