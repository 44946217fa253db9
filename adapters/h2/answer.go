package h2

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/percore/percore/internal/http2"
)

// An Answer is the header of an answer.
type Answer struct {
	Status int

	// Fields are all fields except :status, in the order in which they came. They stay valid.
	Fields []Field

	// End says that there is neither a body nor trailers.
	End bool
}

// clientPart is what only a client's streams have.
type clientPart struct {
	extras  extras // of the stream
	cond    cond
	answer  Answer
	interim func(status int, fields []Field)
	ignored int      // bytes of interim answers, if interim is nil
	awaited int      // this many bytes of the body end AwaitEnd's wait, too; 0: it doesn't wait
	memory  [4]Field // of a short header, with the trailers behind it
	used    uint8    // of memory
	late    bool     // the deadline of the answer has passed before it
	heard   uint16   // the connection's, when the stream was opened

	dropped bool // bytes of it were dropped since; guarded by the stream's reading
}

var clientParts = sync.Pool{New: func() any { return new(clientPart) }}

func makeClientPart(s *Stream) *clientPart {
	if s.extras == nil {
		p := clientParts.Get().(*clientPart)
		p.extras.client, p.extras.stream = p, s
		s.extras = &p.extras
	}
	return s.extras.client
}

// awaits reports whether the waiting goroutine needs more than the given bytes. p may be nil.
func (p *clientPart) awaits(bytes int) bool { return p != nil && bytes < p.awaited }

// keep returns a copy of fields.
func (p *clientPart) keep(fields []Field) []Field {
	if len(fields) > len(p.memory)-int(p.used) {
		return append([]Field(nil), fields...)
	}
	first, last := p.used, p.used+uint8(len(fields))
	p.used = last
	to := p.memory[first:last:last]
	copy(to, fields)
	return to
}

func (in incoming) answerLocked(ev *http2.Event, w *wakes) {
	c, p := in.conn, in.extras.client
	if ev.Status < 200 {
		p.interimLocked(ev)
		return
	}
	c.answered = true
	p.answer = Answer{Status: ev.Status, Fields: p.keep(ev.Fields), End: ev.End}
	if ev.End {
		in.endedLocked(ev, w)
	}
	if ev.End || p.awaited == 0 {
		w.add(in.cond)
	}
}

// interimLocked takes an interim answer. It releases mu while it calls the user's function.
func (p *clientPart) interimLocked(ev *http2.Event) {
	s := p.extras.stream
	c := s.conn
	if f := p.interim; f != nil {
		c.unlock()
		c.guard(func() { f(ev.Status, ev.Fields) })
		c.mu.Lock()
		return
	}
	for i := range ev.Fields {
		p.ignored += ev.Fields[i].Size()
	}
	if p.ignored > c.limits.HeaderListBytes {
		s.resetSoonLocked(ProtocolError, errInterims)
	}
}

// errInterims is for a server whose interim answers are together longer than a header may be. The text
// is net/http's.
var errInterims = errors.New("header list too large")

// errNoClient is for a server's stream.
var errNoClient = errors.New("h2: Answer was called for a stream that no client has opened")

// Answer waits for the header of the answer. It fails with the errors of Read.
func (s *Stream) Answer() (Answer, error) {
	for s.lockUnlessWhole() {
		if answer, err := s.headerLocked(); err != nil || answer.Status != 0 {
			s.conn.unlock()
			return answer, err
		}
		s.leaveLocked()
	}
	return s.extras.client.answer, nil
}

// headerLocked returns the header of the answer, or nothing if it may still come.
func (s *Stream) headerLocked() (Answer, error) {
	switch x := s.extras; {
	case x == nil || x.client == nil:
		return Answer{}, errNoClient
	case x.client.late:
		return Answer{}, errDeadline
	case x.client.answer.Status != 0:
		return x.client.answer, nil
	case s.stage == served:
		return Answer{}, ErrEnded
	case s.err != nil:
		return Answer{}, s.err
	case errors.Is(s.readErr, os.ErrDeadlineExceeded):
		return Answer{}, s.readErr
	}
	return Answer{}, nil
}

// SetAnswerDeadline sets the time after which Answer fails permanently with os.ErrDeadlineExceeded, if
// the answer's header has not come by then. It has no effect once the header is there. It replaces the
// deadline of SetReadDeadline, and the other way round. The zero time removes it.
func (s *Stream) SetAnswerDeadline(t time.Time) error {
	return s.setDeadline(readDeadline, t, func(s *Stream) {
		if x := s.extras; x.client != nil && x.client.answer.Status == 0 {
			x.client.late = true
			s.wakeLocked()
		}
	})
}

// OnInterim registers f, which is called with each interim answer that comes from now on, before
// Answer returns. To see all of them, call OnInterim before Open. f must not block, nor call methods
// of s that do: it holds up the connection's other streams. fields are valid until f returns. A
// server's stream has no interim answers.
func (s *Stream) OnInterim(f func(status int, fields []Field)) {
	if s.conn == nil {
		makeClientPart(s).interim = f
		return
	}
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.extras != nil && s.extras.client != nil {
		s.extras.client.interim = f
	}
}

// AwaitEnd waits until the whole answer has come, so that neither Answer nor Read wait, or until most
// bytes of its body are there, or the stream has ended early. For a short answer that is cheaper than
// waiting for its parts.
func (s *Stream) AwaitEnd(most int) {
	most = max(most, 1)
	for s.lockUnlessWhole() {
		if s.extras == nil || s.extras.client == nil {
			s.conn.unlock()
			return
		}
		p := s.extras.client
		if s.readErr != nil || s.err != nil || s.stage == served || p.late || s.unread.Bytes() >= most {
			p.awaited = 0
			s.conn.unlock()
			return
		}
		p.awaited = most
		s.leaveLocked()
	}
}

// Close ends a client's stream, unless it has already ended: it resets the stream with Cancel, or with
// NoError if the whole answer has come. Unread bytes are dropped. All calls fail afterwards. Without
// Close, the memory of unread bytes is lost, and so is the server's credit for them.
func (s *Stream) Close() {
	c := s.conn
	if c == nil {
		return // it was not opened
	}
	if !s.lockUnlessWhole() {
		incoming{s}.dropWhole()
		return
	}
	defer c.unlock()
	if s.stage == served {
		return
	}
	if !s.core.Ended() {
		code := Cancel
		if s.core.ReadEnded() {
			code = NoError // the server has answered, and wants no more: proxies count other codes as failures
		}
		s.resetSoonLocked(code, nil)
	}
	s.servedLocked()
	s.discardLocked()
}

// Release is Close for a stream that no other goroutine knows. If it reports true, the stream's memory
// is used for others: the Fields of its Answer and its Trailers are no longer valid, and s may be used
// for another Open once it is set to the zero Stream. Otherwise the connection or a deadline may be
// about to touch s, or the stream ended early: leave it to the garbage collector.
func (s *Stream) Release() bool {
	s.Close()
	if !s.whole.Load() || s.cond.due.Load() {
		return false
	}
	p := s.extras.client
	if p.extras.deadlines != [2]Timer{} {
		return false
	}
	*p = clientPart{}
	clientParts.Put(p)
	return true
}
