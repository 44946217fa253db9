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
)

// http2Stream is a Stream over HTTP/2.
type http2Stream struct {
	Stream
	httpstream.Answer

	counted bool // in h1.CountDetached; owned by the sender
}

// detachHTTP2 makes the Stream of an answer over HTTP/2.
func detachHTTP2(w httpstream.Detacher, ctx context.Context) (*Stream, error) {
	d := new(http2Stream)
	d.sending = true // Gone may come before init
	own, err := w.Detach(&d.Answer, d)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.init(d, join(own, ctx))
	d.wrote = d.Answer.Wrote()
	return &d.Stream, nil
}

// Work implements httpstream.Owner: it is the sender's turn.
func (d *http2Stream) Work() {
	d.count(1)
	sent := false
	switch d.work() {
	case waits:
		return
	case complete:
		sent = d.settle(d.End(true))
	case cut:
		_ = d.End(false)
	}
	d.count(-1)
	defer func() {
		if reason := recover(); reason != nil && reason != http.ErrAbortHandler {
			d.Host().Logf("http2: panic serving %v: %v", d.Conn().RemoteAddr(), reason)
		}
	}()
	d.finish(sent)
}

// count counts the Stream among the Server's, or out.
func (d *http2Stream) count(by int64) {
	if h, ok := d.Host().(*http2Host); ok && d.counted != (by > 0) {
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
	d.end(err)
}

// Header implements outlet.
func (d *http2Stream) Header() http.Header {
	if d.wrote {
		return nil // the sender may have the Answer's lock
	}
	return d.Answer.Header()
}

// WriteHeader implements outlet.
func (d *http2Stream) WriteHeader(status int, _ bool) { d.Answer.WriteHeader(status) }

func (d *http2Stream) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		_, err = d.Answer.Write(p)
	}
	if err == nil && flush {
		err = d.Answer.Flush()
	}
	return err
}

// isWhole implements outlet.
func (d *http2Stream) isWhole() bool { return d.Answer.IsWhole() }

// setWriteDeadline implements outlet. If the time has passed the stream ends, and calls Gone.
func (d *http2Stream) setWriteDeadline(t time.Time) error {
	d.mu.Unlock()
	defer d.mu.Lock()
	return d.Answer.SetWriteDeadline(t)
}

func (d *http2Stream) writeTimeout() time.Duration { return d.Answer.WriteTimeout() }

func (d *http2Stream) start() { d.Answer.Resume() }

func (d *http2Stream) cut() { go d.Cut() }
