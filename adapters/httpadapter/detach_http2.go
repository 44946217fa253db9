package httpadapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/shared/detached"
)

// http2Stream is a Stream over HTTP/2.
type http2Stream struct {
	stream
	answer httpstream.Answer

	counted bool // in h1.CountDetached; owned by the sender
}

// detachHTTP2 makes the Stream of an answer over HTTP/2.
func detachHTTP2(w httpstream.Detacher, ctx context.Context) (*Stream, error) {
	d := new(http2Stream)
	d.sender.Init(d) // before Gone, which Detach may call
	own, err := w.Detach(&d.answer, d)
	if err != nil {
		return nil, err
	}
	d.ctx, d.wrote = detached.Join(own, ctx), d.answer.Wrote()
	return &d.Stream, nil
}

// Work implements httpstream.Owner: it is the sender's turn.
func (d *http2Stream) Work() {
	d.count(1)
	over, sent := d.sender.Work()
	if !over {
		return
	}
	d.count(-1)
	defer func() {
		if reason := recover(); reason != nil && reason != http.ErrAbortHandler {
			d.answer.Host().Logf("http2: panic serving %v: %v", d.answer.Conn().RemoteAddr(), reason)
		}
	}()
	d.sender.Finish(sent)
}

// count counts the Stream among the Server's, or out.
func (d *http2Stream) count(by int64) {
	if h, ok := d.answer.Host().(*http2Host); ok && d.counted != (by > 0) {
		d.counted = by > 0
		h.server.counts.Add(h1.CountDetached, by)
	}
}

// Gone implements httpstream.Owner.
func (d *http2Stream) Gone(err error) {
	switch {
	case errors.Is(err, accepting.ErrShare):
		err = errShare
	case err != errPanicked:
		err = fmt.Errorf("%w: %w", ErrClientGone, err)
	}
	d.sender.End(err, true)
}

// Header implements outlet.
func (d *http2Stream) Header() http.Header {
	if d.wrote {
		return nil // the sender may have the Answer's lock
	}
	return d.answer.Header()
}

// WriteHeader implements outlet.
func (d *http2Stream) WriteHeader(status int, _ bool) { d.answer.WriteHeader(status) }

func (d *http2Stream) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		_, err = d.answer.Write(p)
	}
	if err == nil && flush {
		err = d.answer.Flush()
	}
	return err
}

func (d *http2Stream) end(complete bool) error { return d.answer.End(complete) }

// isWhole implements outlet.
func (d *http2Stream) isWhole() bool { return d.answer.IsWhole() }

// setWriteDeadline implements outlet. If the time has passed the stream ends, and calls Gone.
func (d *http2Stream) setWriteDeadline(t time.Time) error {
	d.sender.Unlock()
	defer d.sender.Lock()
	return d.answer.SetWriteDeadline(t)
}

func (d *http2Stream) writeTimeout() time.Duration { return d.answer.WriteTimeout() }

func (d *http2Stream) Start() { d.answer.Resume() }

func (d *http2Stream) Cut() { go d.answer.Cut() }
