package httpadapter

import (
	"context"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/shared/detached"
)

// http1Stream is a Stream over HTTP/1.
type http1Stream struct {
	stream
	answer h1.Answer
}

// detachHTTP1 makes the Stream of an answer over HTTP/1.
func detachHTTP1(w h1.Detacher, ctx context.Context) (*Stream, error) {
	d := new(http1Stream)
	d.sender.Init(d) // before Gone, which Detach may call
	own, err := w.Detach(&d.answer, d)
	if err != nil {
		return nil, err
	}
	d.ctx, d.wrote = detached.Join(own, ctx), d.answer.Wrote()
	return &d.Stream, nil
}

// Work implements h1.Owner: it is the sender's turn.
func (d *http1Stream) Work() (over, sent bool) { return d.sender.Work() }

// Finish implements h1.Owner.
func (d *http1Stream) Finish(sent bool) { d.sender.Finish(sent) }

// Gone implements h1.Owner.
func (d *http1Stream) Gone(err error) bool {
	switch err {
	case nil:
		err = ErrClientGone
	case accepting.ErrShare:
		err = errShare
	}
	return d.sender.End(err, true)
}

// GoesOn implements h1.Owner.
func (d *http1Stream) GoesOn() bool { return d.sender.GoesOn() }

// Reads implements h1.Owner.
func (d *http1Stream) Reads(reads bool) (ended bool) { return d.sender.Blocks(reads) }

// Header implements outlet.
func (d *http1Stream) Header() http.Header {
	if d.wrote {
		return nil
	}
	return d.answer.Header()
}

// WriteHeader implements outlet.
func (d *http1Stream) WriteHeader(status int, _ bool) { d.answer.WriteHeader(status) }

func (d *http1Stream) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		err = d.answer.Write(p)
	}
	if err == nil && flush {
		err = d.answer.Flush()
	}
	return err
}

// end implements outlet. The connection of an answer that is cut ends.
func (d *http1Stream) end(complete bool) error {
	if !complete {
		return nil
	}
	return d.answer.End()
}

// isWhole implements outlet.
func (d *http1Stream) isWhole() bool { return d.answer.IsWhole() }

// setWriteDeadline implements outlet.
func (d *http1Stream) setWriteDeadline(t time.Time) error {
	return d.answer.SetWriteDeadline(t)
}

func (d *http1Stream) writeTimeout() time.Duration { return d.answer.WriteTimeout() }

func (d *http1Stream) Start() { d.answer.Resume() }

func (d *http1Stream) Cut() { d.answer.Cut() }
