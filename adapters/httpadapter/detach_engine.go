package httpadapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/shared/detached"
)

// http1Outlet and http2Outlet are Answers whose bytes the engine sends. Each answer has the methods of
// an outlet that answerOutlet doesn't have.
type (
	http1Outlet struct {
		answerOutlet
		h1.Answer
	}
	http2Outlet struct {
		answerOutlet
		httpstream.Answer
	}
)

// SetWriteDeadline unlocks the sender: if the time has passed the stream of HTTP/2 ends, and calls Gone.
func (d *http2Outlet) SetWriteDeadline(t time.Time) error {
	d.sender.Unlock()
	defer d.sender.Lock()
	return d.Answer.SetWriteDeadline(t)
}

// detachOnEngine makes the Answer of an answer that the engine sends, or returns nil for another.
func detachOnEngine(w http.ResponseWriter, ctx context.Context) (s *Answer, err error) {
	var own context.Context
	var wrote bool
	switch w := w.(type) {
	case semantics.Detacher[h1.Answer]:
		d := new(http1Outlet)
		s = d.init(d)
		own, wrote, err = w.Detach(&d.Answer, owner{&d.sender})
	case semantics.Detacher[httpstream.Answer]:
		d := new(http2Outlet)
		s = d.init(d)
		own, wrote, err = w.Detach(&d.Answer, owner{&d.sender})
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.ctx, s.wrote = detached.Join(own, ctx), wrote
	return s, nil
}

// init makes o the outlet of the Answer. It comes before an answer can call Gone.
func (s *Answer) init(o outlet) *Answer {
	s.sender.Init(o)
	return s
}

// owner is an Answer's sender as the owner of its answer.
type owner struct {
	*detached.Sender[byte, outlet]
}

func (o owner) Gone(err error) bool {
	switch {
	case err == nil:
		err = ErrClientGone
	case errors.Is(err, accepting.ErrShare):
		err = errShare
	case err != errPanicked:
		err = fmt.Errorf("%w: %w", ErrClientGone, err)
	}
	return o.End(err, true)
}
