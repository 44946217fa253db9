package httpadapter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/h1"
	"github.com/percore/percore/adapters/httpadapter/internal/httpstream"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/shared/detached"
)

// Detach lets the answer to r go on after the handler has returned, for server-sent events, long polls
// and the like. It calls begin with an [Answer], the rest of the answer, which any goroutine may write
// to. Call it last in the handler: bytes that the handler wrote before come first, and w takes nothing
// more.
//
// Where the engine serves the connection, Detach returns when begin does. The handler returns, and the
// answer waits without a goroutine and without a buffer. Elsewhere Detach returns only when the Answer
// has ended: if net/http serves the connection (see [Server]), off Linux, with
// httptest.ResponseRecorder, and, except as below, if middleware has wrapped w. The same program works
// both ways.
//
// Detach looks below wrappers that have the method Unwrap, as [http.ResponseController] does. If the
// header was sent, and has no Content-Encoding, the Answer writes past the wrapper. Otherwise it
// writes through the wrapper, and the handler waits. Behind such middleware send the header first.
// The wrapper sees only what was written before Detach.
//
// The http.Server's WriteTimeout doesn't count the time for which the answer waits; it limits each
// send instead: see [Answer.SetWriteDeadline].
//
// Where the handler waits, w would still take bytes, after the answer: don't write to it.
//
// In begin, register the Answer where others find it. Bytes written to it are sent when the handler
// has returned. If begin panics, the answer is cut.
//
// An answer without a body has nothing to wait for, so its Answer ends by itself, as after Close: with
// status 204 or 304, and for HEAD once its header was sent, by Flush or because the body is long.
// (Where Detach waits and w had such a header, the first flushed bytes end it.)
//
// Detach fails, without calling begin, if the answer is hijacked or detached already, or the handler
// has returned.
func Detach(w http.ResponseWriter, r *http.Request, begin func(*Answer)) error {
	if w == nil || r == nil || begin == nil {
		return errors.New("httpadapter: Detach was called with a nil http.ResponseWriter, *http.Request or function")
	}
	below, wrapped := unwrapped(w)
	if !wrapped || passes(w, below) {
		s, err := detachOnEngine(below, r.Context())
		if err != nil {
			return err
		}
		if s != nil {
			s.limitSend(false)
			s.sender.Begin(func() { begin(s) })
			return nil
		}
	}
	return hold(w, r, begin)
}

// unwrapped returns the http.ResponseWriter below all wrappers.
func unwrapped(w http.ResponseWriter) (below http.ResponseWriter, wrapped bool) {
	for {
		switch w.(type) {
		case semantics.Detacher[h1.Answer], semantics.Detacher[httpstream.Answer]:
			return w, wrapped
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w, wrapped
		}
		next := u.Unwrap()
		if next == nil {
			return w, wrapped
		}
		w, wrapped = next, true
	}
}

// passes reports whether a body may be written past the wrapper w to below: the header was sent there,
// and says nothing about a coding, and what the wrapper has held back is sent.
func passes(w, below http.ResponseWriter) bool {
	b, ok := below.(interface{ SentPlain() bool })
	return ok && b.SentPlain() && http.NewResponseController(w).Flush() == nil
}

// An Answer is the rest of an answer that [Detach] has detached. It is an [http.ResponseWriter] and an
// [http.Flusher] for code that writes answers, and goes on until Close. Any goroutine may call its
// methods, which never wait for the client.
//
// Written bytes wait for Flush or Close, or until they fill more than a packet. Then a goroutine of
// the Server sends them to the client. If they come faster than the client takes them, they wait in
// memory, up to a limit: see SetLimit.
//
// The state is the sender's: see [detached.Sender].
type Answer struct {
	sender detached.Sender[byte, outlet]
	ctx    context.Context // immutable

	deadlines sync.Mutex // held while the outlet's write deadline is set; before the sender's lock

	header http.Header // nil: the program has not asked for it; guarded by the sender's lock
	wrote  bool        // the header is fixed; guarded by the sender's lock
	whole  bool        // what w had before Detach is the whole answer; owned by the sender
	timed  bool        // the program has set the write deadline; guarded by deadlines
}

// outlet is what an Answer writes to. The sender calls Write, Flush and Finish, which may block.
type outlet interface {
	detached.Outlet[byte]                  // answerOutlet has all but Start and Cut
	Header(wrote bool) http.Header         // nil if it is fixed, as wrote says of the Answer
	WriteHeader(status int, explicit bool) // a final status, before anything is written; the program's, or 200
	Write(p []byte) error                  // without a count, which would keep p in memory as it waits
	Flush() error
	Finish(complete bool) error         // all was written, or the answer is cut
	IsComplete() bool                   // see IsWhole of detached.Outlet
	SetWriteDeadline(t time.Time) error // if the Answer isn't over
	WriteTimeout() time.Duration        // of the http.Server; 0: none
}

var (
	// ErrClientGone is the error of an Answer whose client has ended its side, or the connection.
	ErrClientGone = errors.New("httpadapter: the client has gone")

	// ErrSlowClient is the error of a Write beyond the limit: see [Answer.SetLimit].
	ErrSlowClient = errors.New("httpadapter: the client takes the answer too slowly")

	// ErrAnswerClosed is the error of a Write after Close.
	ErrAnswerClosed = errors.New("httpadapter: the Answer is closed")

	errAborted  = errors.New("httpadapter: the Answer was aborted")
	errShare    = fmt.Errorf("httpadapter: the Answer was cut: %w", accepting.ErrShare)
	errPanicked = semantics.ErrPanicked
	errDetached = semantics.ErrDetached

	senderErrors = detached.Errors{Slow: ErrSlowClient, Closed: ErrAnswerClosed, Panicked: errPanicked, Gone: ErrClientGone}
)

// Context returns a context with the values of the context of Detach's request. It is cancelled when
// the Answer has ended. (Middleware may cancel the request's own context when the handler returns.)
func (s *Answer) Context() context.Context { return s.ctx }

// Header implements http.ResponseWriter, for a header that is not fixed yet. To set trailers, call it
// before the header is fixed.
func (s *Answer) Header() http.Header {
	s.sender.Lock()
	defer s.sender.Unlock()
	if s.header == nil && s.sender.IsOpenLocked() { // or the sender has it
		s.header = s.sender.Outlet.Header(s.wrote)
	}
	if s.header == nil {
		return make(http.Header)
	}
	return s.header
}

// WriteHeader implements http.ResponseWriter, for a final status.
func (s *Answer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("httpadapter: WriteHeader was called with a status that is not between 100 and 999")
	}
	s.sender.Lock()
	defer s.sender.Unlock()
	if status >= 200 {
		s.writeHeaderLocked(status, true)
	}
}

// writeHeaderLocked fixes the header. There was no sender yet if nothing was written.
func (s *Answer) writeHeaderLocked(status int, explicit bool) {
	if s.wrote || !s.sender.IsOpenLocked() {
		return
	}
	s.wrote = true
	s.sender.Outlet.WriteHeader(status, explicit)
	if !semantics.BodyAllowed(status) {
		_ = s.sender.CloseLocked()
	}
}

// Write adds all of p to the body, or nothing. The client gets it with the next Flush or Close, if not
// earlier. Write fails when the Answer has ended, and with ErrSlowClient when the limit is reached.
func (s *Answer) Write(p []byte) (n int, err error) {
	s.sender.Lock()
	defer s.sender.Unlock()
	if err := s.sender.AdmitLocked(len(p)); err != nil {
		return 0, err
	}
	s.writeHeaderLocked(http.StatusOK, false)
	s.sender.AddLocked(len(p), p...)
	return len(p), nil
}

// Flush implements http.Flusher: it sends what was written to the client, and doesn't wait for that.
func (s *Answer) Flush() {
	s.sender.Lock()
	defer s.sender.Unlock()
	s.writeHeaderLocked(http.StatusOK, false)
	s.sender.FlushLocked()
}

// Close ends the answer after the bytes that were written, without waiting for the client. The
// connection then serves its next request. If the Answer has already ended, Close returns why.
func (s *Answer) Close() error {
	s.sender.Lock()
	defer s.sender.Unlock()
	return s.sender.CloseLocked()
}

// Abort cuts the answer: unsent bytes are dropped, and the connection or the HTTP/2 stream ends, so
// the client sees that the answer is not complete if its length or chunks show that. The function of
// OnEnd gets err, or another error if err is nil.
func (s *Answer) Abort(err error) {
	if err == nil {
		err = errAborted
	}
	s.sender.End(err, true)
}

// SetLimit sets how many bytes may wait for a slow client; the default is 64 KiB. A Write beyond the
// limit fails with ErrSlowClient, and with drop also aborts the answer. A Write that finds nothing
// waiting may be longer. SetLimit panics if bytes is negative.
func (s *Answer) SetLimit(bytes int, drop bool) {
	if bytes < 0 {
		panic("httpadapter: SetLimit was called with a negative number")
	}
	s.sender.SetLimit(bytes, drop)
}

// Unsent returns how many bytes wait for the client to take them, or for Flush.
func (s *Answer) Unsent() int { return s.sender.Unsent() }

// SetWriteDeadline sets the time after which bytes can't be sent to the client any more, as in
// [http.ResponseController]. The zero time removes it. Without a call, each send has the http.Server's
// WriteTimeout to itself: a client may take that long for the bytes that are sent at once. A deadline
// that w had before Detach no longer counts.
func (s *Answer) SetWriteDeadline(t time.Time) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	s.timed = true
	return s.setWriteDeadline(t)
}

// limitSend sets the write deadline when a send begins, and removes it when the send has ended, unless
// the program has set one.
func (s *Answer) limitSend(begins bool) {
	d := s.sender.Outlet.WriteTimeout()
	if d <= 0 {
		return
	}
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	var t time.Time
	if begins {
		t = time.Now().Add(d)
	}
	if !s.timed {
		_ = s.setWriteDeadline(t)
	}
}

func (s *Answer) setWriteDeadline(t time.Time) error {
	s.sender.Lock()
	defer s.sender.Unlock()
	if !s.sender.GoesOnLocked() {
		return s.sender.ErrLocked()
	}
	return s.sender.Outlet.SetWriteDeadline(t)
}

// OnEnd sets a function that is called once when the Answer has ended: with nil when everything was
// sent after Close, or with the error that cut it. There is only one function; f replaces it, and nil
// removes it. f must not block: the connection waits for it.
//
// No other method calls f, so the caller of other methods may hold a lock that f takes. OnEnd itself
// calls f at once if the Answer has ended. That can't happen before the handler has returned: only in
// Detach's begin may the lock be held for OnEnd.
func (s *Answer) OnEnd(f func(err error)) { s.sender.OnEnd(f) }

// answerOutlet is an Answer as the outlet of its sender, for types that have the outlet's other methods.
type answerOutlet struct{ Answer }

// Send implements [detached.Outlet]. Some errors are the program's mistake, and the answer goes on.
func (s *answerOutlet) Send(p []byte, n int, flush bool) (goesOn bool, err error) {
	s.limitSend(true)
	if len(p) > 0 {
		err = s.sender.Outlet.Write(p)
	}
	if err == nil && flush {
		err = s.sender.Outlet.Flush()
	}
	s.limitSend(false)
	s.sender.Sent(n)
	s.whole = errors.Is(err, http.ErrBodyNotAllowed)
	return s.whole || errors.Is(err, http.ErrContentLength), err
}

func (s *answerOutlet) End(cut error) error {
	if cut == nil {
		s.limitSend(true)
	}
	return s.sender.Outlet.Finish(cut == nil)
}

func (s *answerOutlet) IsWhole() bool            { return s.whole || s.sender.Outlet.IsComplete() }
func (s *answerOutlet) Errors() *detached.Errors { return &senderErrors }

var (
	_ http.ResponseWriter = (*Answer)(nil)
	_ http.Flusher        = (*Answer)(nil)
)
