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

// held is an answer whose handler waits in Detach. That goroutine is the sender.
type held struct {
	Stream
	w          http.ResponseWriter
	controller *http.ResponseController
	wake       chan struct{} // has room for a token of start
	asked      bool          // for the header; guarded by mu
	noBody     bool          // the header, which is fixed, has none behind it; guarded by mu
	timeout    time.Duration // of the http.Server; immutable
	isHead     bool          // immutable
	flushed    bool          // owned by the sender

	// The header as the program sees it. The sender must not read a map that the program sets trailers
	// in.
	fields http.Header
}

// heldAnswers has the answers whose handlers wait: the http.ResponseWriters below all wrappers. A second
// Detach would wait for the first one, which waits for it. One that can't be compared is not in it.
var heldAnswers sync.Map

// hold is Detach where the handler must not return.
func hold(w http.ResponseWriter, r *http.Request, begin func(*Stream)) error {
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
	h.init(h, r.Context())
	h.limitSend(false)
	sent := false
	defer func() {
		if !sent {
			h.end(errPanicked) // unless it is dead
			if !h.isGone() {
				h.cut() // net/http closes the connection when it can't send the end of the answer
			}
		}
		h.finish(sent)
	}()
	begin(&h.Stream)
	for {
		switch h.work() {
		case complete:
			h.mu.Lock()
			h.copyHeader() // the trailers
			h.mu.Unlock()
			sent = h.settle(nil)
			return nil
		case cut:
			return nil
		}
		select {
		case <-h.wake:
		case <-r.Context().Done():
			h.end(ErrClientGone)
			<-h.wake
		}
	}
}

// isGone reports whether the client has gone.
func (s *Stream) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == ErrClientGone
}

// Header implements outlet. Nothing else may call net/http's Header while the sender writes.
func (h *held) Header() http.Header {
	h.asked = true
	return h.fields
}

// copyHeader makes the header what the program has made of it.
func (h *held) copyHeader() {
	if to := h.w.Header(); h.asked && to != nil {
		clear(to)
		maps.Copy(to, h.fields)
	}
}

// WriteHeader implements outlet. The handler may have fixed the header already, and net/http would log a
// second time. If the program has asked for the header it may not change any more: it may do so while
// the sender reads it.
func (h *held) WriteHeader(status int, explicit bool) {
	if explicit || h.asked {
		h.copyHeader()
		h.w.WriteHeader(status)
	}
	h.noBody = !semantics.BodyAllowed(status)
}

// isWhole implements outlet. It doesn't know what the handler has sent before.
func (h *held) isWhole() bool { return h.noBody || h.isHead && h.flushed }

func (h *held) write(p []byte, flush bool) (err error) {
	if len(p) > 0 {
		_, err = h.w.Write(p)
	}
	if err == nil && flush {
		_ = h.controller.Flush() // not supported, or the next write fails, too
		h.flushed = true
	}
	return err
}

func (h *held) setWriteDeadline(t time.Time) error { return h.controller.SetWriteDeadline(t) }

func (h *held) writeTimeout() time.Duration { return h.timeout }

func (h *held) start() { h.wake <- struct{}{} }

// cut makes net/http's writes fail, unless the handler has returned, when some of its types panic.
func (h *held) cut() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.over {
		_ = h.controller.SetWriteDeadline(monotime.LongAgo)
	}
}
