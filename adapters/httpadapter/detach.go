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
)

// Detach lets the answer to r go on after the handler has returned, for server-sent events, long polls
// and the like. It calls begin with the answer's rest, a [Stream], that any goroutine may write to. Call
// it last in the handler: what the handler has written before comes first, and w takes nothing more.
//
// Where the engine serves the connection, Detach returns when begin does. The handler returns, and the
// answer waits without a goroutine and without a buffer. Elsewhere Detach returns when the Stream has
// ended: if net/http serves the connection (see [Server]), off Linux, with httptest.ResponseRecorder,
// and if middleware has wrapped w, with two exceptions. The same program runs in both ways.
//
// Detach looks below wrappers that have the method Unwrap, as [http.ResponseController] does. If the
// header was sent, and has no Content-Encoding, the Stream writes past the wrapper. Otherwise it writes
// through it, and the handler waits. So send the header first, behind such middleware. The wrapper sees
// what was written before Detach, and no more.
//
// The time for which the answer waits doesn't count for the http.Server's WriteTimeout, which bounds
// each send instead: see [Stream.SetWriteDeadline].
//
// Where the handler waits nothing keeps w from taking bytes behind the answer: don't write to it.
//
// In begin, register the Stream where others find it. Bytes that are written to it are sent when the
// handler has returned. If begin panics the answer is cut.
//
// An answer without a body has nothing to wait for, so its Stream ends by itself, as after Close: one
// with the status 204 or 304, and one to HEAD once its header was sent, by Flush or because the body is
// long. (Where Detach waits, and w had such a header, the first bytes that are flushed end it.)
//
// Detach fails, without calling begin, if the answer is hijacked or detached already, or the handler
// has returned.
func Detach(w http.ResponseWriter, r *http.Request, begin func(*Stream)) error {
	if w == nil || r == nil || begin == nil {
		return errors.New("httpadapter: Detach was called with a nil http.ResponseWriter, *http.Request or function")
	}
	below, wrapped := unwrapped(w)
	var s *Stream
	var err error
	switch below := below.(type) {
	case h1.Detacher:
		if wrapped && !passes(w, below.SentPlain) {
			break
		}
		s, err = detachHTTP1(below, r.Context())
	case httpstream.Detacher:
		if wrapped && !passes(w, below.SentPlain) {
			break
		}
		s, err = detachHTTP2(below, r.Context())
	}
	switch {
	case err != nil:
		return err
	case s != nil:
		s.limitSend(false)
		s.begin(begin)
	default:
		return hold(w, r, begin)
	}
	return nil
}

// begin calls the function of Detach. Middleware may recover its panic, and return.
func (s *Stream) begin(f func(*Stream)) {
	returned := false
	defer func() {
		if !returned {
			s.end(errPanicked)
		}
	}()
	f(s)
	returned = true
}

// unwrapped returns the http.ResponseWriter below all wrappers.
func unwrapped(w http.ResponseWriter) (below http.ResponseWriter, wrapped bool) {
	for {
		switch w.(type) {
		case h1.Detacher, httpstream.Detacher:
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

// passes reports whether a body may be written past the wrapper w: it was sentPlain, and what the
// wrapper has held back is sent.
func passes(w http.ResponseWriter, sentPlain func() bool) bool {
	return sentPlain() && http.NewResponseController(w).Flush() == nil
}

// A Stream is the rest of an answer that [Detach] has detached. It is an [http.ResponseWriter] and an
// [http.Flusher] for code that writes answers, and goes on until Close. Any goroutine may call the
// methods, which never wait for the client.
//
// Bytes that are written wait for Flush or Close, or until they are more than a packet, and then go to
// the client on a goroutine of the Server's. When the client takes them more slowly than they come,
// they wait in memory, up to a limit: see SetLimit.
//
//	state    meaning                                             leaves by
//	open     it may be written to                                Close, a header that is the whole answer:
//	                                                             closing; end: dead
//	closing  the rest is being sent                              all is sent: over; end: dead
//	dead     the client has gone, or a write has failed, or      the sender has noticed: over
//	         Abort was called
//	over     the context and the function of OnEnd have          (final)
//	         learned of the end
//
//	sending  meaning                                             leaves by
//	false    nothing is to be sent; there is no sender           start, for Flush, Close, end, a long write
//	true     the handler has not returned, or a goroutine        work, when nothing is to be sent
//	         is, or is about to be, in work: the sender
type Stream struct {
	// immutable
	outlet outlet
	ctx    context.Context

	deadlines sync.Mutex // held while the outlet's write deadline is set; before mu

	mu sync.Mutex // never held while a write or the user's code runs

	// guarded by mu
	unsent   []byte // written, and not given to outlet
	inFlight int    // bytes that outlet.write has; 1 while the sender ends the answer
	limit    int
	err      error       // why it is dead, or why Write fails
	onEnd    func(error) // nil: none
	header   http.Header // nil: the program has not asked for it
	sending  bool
	wrote    bool // the header is fixed
	flushes  bool // Flush was called since the last write to the client
	closing  bool
	dead     bool
	over     bool
	drops    bool // a client that is slow
	reads    bool // the sender waits for the rest of the request's body

	timed bool // the program has set the write deadline; guarded by deadlines
}

// outlet is what a Stream writes to. The sender calls write, which may block.
type outlet interface {
	Header() http.Header                   // nil if it is fixed
	WriteHeader(status int, explicit bool) // a final status, before anything is written; the program's, or 200
	write(p []byte, flush bool) error      // p may be empty
	isWhole() bool                         // the header is all of the answer, and nothing waits for it; the sender asks
	setWriteDeadline(t time.Time) error    // if the Stream isn't over
	writeTimeout() time.Duration           // of the http.Server; 0: none
	start()                                // makes a goroutine call work: the sender. It doesn't block
	cut()                                  // makes a write that blocks fail. It doesn't block
}

const (
	// DefaultUnsent is how many bytes a Stream holds that wait for a slow client, without SetLimit.
	DefaultUnsent = 64 << 10

	sendBytes = 2 << 10 // that are sent without Flush
)

var (
	// ErrClientGone is the error of a Stream whose client has ended its side, or the connection.
	ErrClientGone = errors.New("httpadapter: the client has gone")

	// ErrSlowClient is the error of a Write for which there is no room: see [Stream.SetLimit].
	ErrSlowClient = errors.New("httpadapter: the client takes the answer too slowly")

	// ErrStreamClosed is the error of a Write after Close.
	ErrStreamClosed = errors.New("httpadapter: the Stream is closed")

	errAborted  = errors.New("httpadapter: the Stream was aborted")
	errShare    = fmt.Errorf("httpadapter: the Stream was cut: %w", accepting.ErrShare)
	errPanicked = semantics.ErrPanicked
	errDetached = semantics.ErrDetached
)

func (s *Stream) init(o outlet, ctx context.Context) {
	s.outlet, s.ctx, s.limit = o, ctx, DefaultUnsent
	s.sending = true // until the handler has returned
}

// Context returns a context with the values of the request's that Detach was given. It is cancelled
// when the Stream has ended. (Middleware may cancel the request's own when the handler returns.)
func (s *Stream) Context() context.Context { return s.ctx }

// Header is http.ResponseWriter's, for a header that is not fixed yet, and for trailers, if it is called
// before that.
func (s *Stream) Header() http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.header == nil && !s.over && !s.dead && !s.closing { // or the sender has it
		s.header = s.outlet.Header()
	}
	if s.header == nil {
		return make(http.Header)
	}
	return s.header
}

// WriteHeader is http.ResponseWriter's, for a final status.
func (s *Stream) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("httpadapter: WriteHeader was called with a status that is not between 100 and 999")
	}
	s.mu.Lock()
	defer s.unlock()
	if status >= 200 {
		s.writeHeaderLocked(status, true)
	}
}

// writeHeaderLocked fixes the header. There was no sender yet if nothing was written.
func (s *Stream) writeHeaderLocked(status int, explicit bool) {
	if !s.wrote && !s.dead && !s.closing {
		s.wrote = true
		s.outlet.WriteHeader(status, explicit)
		s.closing = !semantics.BodyAllowed(status)
	}
}

// Write adds p to the body, all of it or nothing. The client gets it with the next Flush or Close, if
// not before. Write fails when the Stream has ended, and with ErrSlowClient when the limit is reached.
func (s *Stream) Write(p []byte) (n int, err error) {
	s.mu.Lock()
	switch waits := len(s.unsent) + s.inFlight; {
	case s.err != nil:
		err = s.err
	case s.closing:
		err = ErrStreamClosed
	case waits > 0 && waits+len(p) > s.limit:
		if err = ErrSlowClient; s.drops {
			s.mu.Unlock()
			s.end(err)
			return 0, err
		}
	default:
		s.writeHeaderLocked(http.StatusOK, false)
		s.unsent = append(s.unsent, p...)
		n = len(p)
	}
	s.unlock()
	return n, err
}

// Flush is http.Flusher's: it lets the client have what was written. It doesn't wait for that.
func (s *Stream) Flush() {
	s.mu.Lock()
	if s.err == nil && !s.closing {
		s.writeHeaderLocked(http.StatusOK, false)
		s.flushes = true
	}
	s.unlock()
}

// Close ends the answer behind what was written, without waiting for the client. The connection then
// serves its next request.
func (s *Stream) Close() error {
	s.mu.Lock()
	s.closing = true
	err := s.err
	s.unlock()
	return err
}

// Abort cuts the answer: what is unsent is dropped, and the client sees that the answer is not complete
// if its length or chunks show that, because the connection, or the stream of HTTP/2, ends.
func (s *Stream) Abort() { s.end(errAborted) }

// SetLimit sets how many bytes may wait for a slow client, DefaultUnsent at first. A Write for which
// there is no room fails with ErrSlowClient, and with drop it also aborts the answer. One that finds
// nothing waiting may be longer. It panics if bytes is negative.
func (s *Stream) SetLimit(bytes int, drop bool) {
	if bytes < 0 {
		panic("httpadapter: SetLimit was called with a negative number")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit, s.drops = bytes, drop
}

// Unsent returns how many bytes wait for the client to take them, or for Flush.
func (s *Stream) Unsent() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.unsent) + s.inFlight
}

// SetWriteDeadline sets the time after which bytes can't be sent to the client any more, as that of
// [http.ResponseController]. The zero time removes it. Without a call each send has the http.Server's
// WriteTimeout for itself: so long may a client take for the bytes that go to it at once. A deadline
// that w had before Detach doesn't count any more.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.deadlines.Lock()
	defer s.deadlines.Unlock()
	s.timed = true
	return s.setWriteDeadline(t)
}

// limitSend sets the write deadline of a send that begins, or removes that of one that has ended, unless
// the program has set one.
func (s *Stream) limitSend(begins bool) {
	d := s.outlet.writeTimeout()
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

func (s *Stream) setWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.dead {
		return s.errorLocked()
	}
	return s.outlet.setWriteDeadline(t)
}

func (s *Stream) errorLocked() error {
	if s.err == nil {
		return ErrStreamClosed
	}
	return s.err
}

// OnEnd sets a function that is called once when the Stream has ended: with nil when all was sent after
// Close, or with the error that cut it. There is one function; f replaces it, and nil removes it. f must
// not block: the connection waits.
//
// No other method calls f, so a lock that f takes may be held while they are called. OnEnd calls f at
// once if the Stream has ended, which it can't have before the handler has returned: in Detach's begin a
// lock may be held here, too, but not later.
func (s *Stream) OnEnd(f func(err error)) {
	s.mu.Lock()
	over, err := s.over, s.err
	if !over {
		s.onEnd = f
	}
	s.mu.Unlock()
	if over && f != nil {
		f(err)
	}
}

// end makes the Stream dead, and reports whether it wasn't. It doesn't block.
func (s *Stream) end(err error) bool {
	s.mu.Lock()
	if s.dead || s.over {
		s.mu.Unlock()
		return false
	}
	s.dead, s.err = true, err
	s.unsent = nil
	blocked := s.inFlight > 0 || s.reads
	s.unlock()
	if blocked {
		s.outlet.cut()
	}
	return true
}

// goesOn reports whether the Stream is neither dead nor over.
func (s *Stream) goesOn() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.dead && !s.over
}

// unlock unlocks mu, and starts a sender if there is something to do.
func (s *Stream) unlock() {
	start := !s.sending && !s.over && s.hasWorkLocked()
	s.sending = s.sending || start
	s.mu.Unlock()
	if start {
		s.outlet.start()
	}
}

func (s *Stream) hasWorkLocked() bool {
	return s.flushes || s.closing || s.dead || len(s.unsent) >= sendBytes
}

// outcome is how work ends.
type outcome uint8

const (
	waits    outcome = iota // nothing is to be sent: the caller is no sender any more
	complete                // Close was called, and all was written to the outlet, whose answer is to be ended
	cut                     // the Stream is dead
)

// work sends what is to be sent. Its caller is the sender.
func (s *Stream) work() outcome {
	s.mu.Lock()
	for {
		if !s.dead && s.outlet.isWhole() {
			s.closing, s.unsent = true, nil
		}
		p, flush := s.unsent, s.flushes
		switch {
		case s.dead:
			s.mu.Unlock()
			return cut
		case !s.hasWorkLocked():
			s.sending = false
			s.mu.Unlock()
			return waits
		case s.closing && len(p) == 0 && !flush:
			s.inFlight = 1 // or Abort would not cut an end that blocks
			s.mu.Unlock()
			s.limitSend(true)
			return complete
		}
		s.unsent, s.flushes = nil, false
		s.inFlight = max(len(p), 1)
		s.mu.Unlock()
		s.limitSend(true)
		err := s.outlet.write(p, flush)
		s.limitSend(false)
		s.mu.Lock()
		s.inFlight = 0
		s.failLocked(err)
	}
}

// failLocked notes the error of a write. Some are the program's mistake, and the answer goes on.
func (s *Stream) failLocked(err error) {
	if err == nil || s.dead {
		return
	}
	switch {
	case errors.Is(err, http.ErrBodyNotAllowed): // the header that w had before Detach is the whole answer
		s.closing, s.unsent = true, nil
	case errors.Is(err, http.ErrContentLength):
		s.unsent = nil
	default:
		s.dead = true
	}
	s.err = err
}

// settle reports whether the answer is complete: err is why its end could not be sent. From then on
// nothing cuts it.
func (s *Stream) settle(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight = 0
	if s.dead {
		return false
	}
	if err != nil {
		s.err = err
	}
	s.over = err == nil
	return s.over
}

// finish notes the end, of which the context and the function of OnEnd learn.
func (s *Stream) finish(sent bool) {
	s.mu.Lock()
	if !sent && s.err == nil {
		s.err = ErrClientGone
	}
	err, f := s.err, s.onEnd
	s.over, s.onEnd, s.unsent = true, nil, nil
	s.mu.Unlock()
	if f != nil {
		f(err)
	}
}

// joined is a context with the values of another.
type joined struct {
	context.Context
	values context.Context
}

// Value implements context.Context.
func (j joined) Value(key any) any { return j.values.Value(key) }

// AfterFunc is for package context: contexts that derive from j need no goroutine.
func (j joined) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(j.Context, f) }

// join returns the context of a Stream: own is that of its request, and of the one Detach was given.
func join(own, of context.Context) context.Context {
	if own == of {
		return own
	}
	return joined{own, of}
}

var (
	_ http.ResponseWriter = (*Stream)(nil)
	_ http.Flusher        = (*Stream)(nil)
)
