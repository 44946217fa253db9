package httpadapter

import (
	"maps"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/monotime"
)

// held is the outlet of an Answer whose handler waits in Detach. That goroutine is the sender.
type held struct {
	answerOutlet
	w          http.ResponseWriter
	controller *http.ResponseController
	wake       chan struct{} // has room for a token of start
	asked      bool          // for the header; guarded by the sender's lock
	noBody     bool          // the header, which is fixed, has none after it; guarded by the sender's lock
	timeout    time.Duration // of the http.Server; immutable
	isHead     bool          // immutable
	flushed    bool          // owned by the sender

	// The header as the program sees it. The sender must not read a map that the program sets trailers in.
	fields http.Header
}

// heldAnswers has the answers whose handlers wait: the http.ResponseWriters below all wrappers.
// Without it a second Detach would wait for the first one, which waits for it. A ResponseWriter that
// can't be compared is not in it.
var heldAnswers sync.Map

// hold is Detach where the handler must not return.
func hold(w http.ResponseWriter, r *http.Request, begin func(*Answer)) error {
	below, _ := unwrapped(w)
	if reflect.ValueOf(below).Comparable() {
		if _, twice := heldAnswers.LoadOrStore(below, nil); twice {
			return errDetached
		}
		defer heldAnswers.Delete(below)
	}
	h := &held{w: w, controller: http.NewResponseController(w), wake: make(chan struct{}, 1),
		isHead: r.Method == http.MethodHead}
	h.fields = make(http.Header)
	maps.Copy(h.fields, w.Header())
	if srv, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok {
		h.timeout = srv.WriteTimeout
	}
	h.sender.Init(h)
	h.ctx = r.Context()
	h.limitSend(false)
	over, sent := false, false
	defer func() {
		if !sent {
			h.sender.End(errPanicked, true) // unless it is dead
			if !h.isGone() {
				h.Cut() // net/http closes the connection when it can't send the end of the answer
			}
		}
		h.sender.Finish(sent)
	}()
	begin(&h.Answer)
	for {
		if over, sent = h.sender.Work(); over {
			return nil
		}
		select {
		case <-h.wake:
		case <-r.Context().Done():
			h.sender.End(ErrClientGone, true)
			<-h.wake
		}
	}
}

// isGone reports whether the client has gone.
func (h *held) isGone() bool {
	h.sender.Lock()
	defer h.sender.Unlock()
	return h.sender.ErrLocked() == ErrClientGone
}

// Header returns a copy: nothing else may call net/http's Header while the sender writes.
func (h *held) Header(bool) http.Header {
	h.asked = true
	return h.fields
}

// copyHeader makes the header what the program has made of the copy.
func (h *held) copyHeader() {
	if to := h.w.Header(); h.asked && to != nil {
		clear(to)
		maps.Copy(to, h.fields)
	}
}

// WriteHeader leaves a header alone that the handler may have fixed already: net/http would log that. If
// the program has asked for the header it may not change any more: it may do so while the sender reads
// it.
func (h *held) WriteHeader(status int, explicit bool) {
	if explicit || h.asked {
		h.copyHeader()
		h.w.WriteHeader(status)
	}
	h.noBody = !semantics.BodyAllowed(status)
}

// IsComplete doesn't know what the handler has sent before.
func (h *held) IsComplete() bool { return h.noBody || h.isHead && h.flushed }

func (h *held) Write(p []byte) error {
	_, err := h.w.Write(p)
	return err
}

func (h *held) Flush() error {
	_ = h.controller.Flush() // not supported, or the next write fails, too
	h.flushed = true
	return nil
}

func (h *held) Finish(complete bool) error {
	if complete {
		h.sender.Lock()
		defer h.sender.Unlock()
		h.copyHeader() // the trailers
	}
	return nil
}

func (h *held) SetWriteDeadline(t time.Time) error { return h.controller.SetWriteDeadline(t) }
func (h *held) WriteTimeout() time.Duration        { return h.timeout }
func (h *held) Start()                             { h.wake <- struct{}{} }

// Cut makes net/http's writes fail, unless the handler has returned, when some of its types panic.
func (h *held) Cut() {
	h.sender.Lock()
	defer h.sender.Unlock()
	if !h.sender.IsOverLocked() {
		_ = h.controller.SetWriteDeadline(monotime.LongAgo)
	}
}
