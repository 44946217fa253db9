package h2

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/percore/percore/internal/testnet"
)

// mover serves its stream with serve, which moves it.
type mover struct {
	stream    Stream
	serve     func(*mover)
	cancelled atomic.Bool
}

func (m *mover) Stream() *Stream { return &m.stream }
func (m *mover) Serve()          { m.serve(m) }
func (m *mover) Cancelled(error) { m.cancelled.Store(true) }

// moved is the handler to which the stream of a mover is moved. resume is called by each Resume.
type moved struct {
	stream    Stream
	resume    func(*Stream)
	cancelled chan error
}

func (m *moved) Stream() *Stream     { return &m.stream }
func (m *moved) Serve()              { panic("Serve was called for a stream that was moved") }
func (m *moved) Cancelled(err error) { m.cancelled <- err }
func (m *moved) Resume()             { m.resume(&m.stream) }

// moveWith is a Handler of movers.
type moveWith func(*mover)

func (f moveWith) Accept(*Conn, *Request) StreamHandler { return &mover{serve: f} }

// move moves the stream.
func (m *mover) move(resume func(*Stream)) *moved {
	next := &moved{resume: resume, cancelled: make(chan error, 2)}
	m.stream.Move(next)
	return next
}

// TestMove: a stream that is moved goes on where it was, and nothing has its handler any more.
func TestMove(t *testing.T) {
	type state struct {
		next    *moved
		handler weak.Pointer[mover]
	}
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		states := make(chan state, 1)
		f := start(moveWith(func(m *mover) {
			if err := m.stream.Send(Message{Status: 200, Body: []byte("one ")}); err != nil {
				t.Errorf("Send: %v", err)
			}
			if _, err := io.ReadFull(&m.stream, make([]byte, 3)); err != nil {
				t.Errorf("Read: %v", err)
			}
			next := m.move(func(s *Stream) {
				body, err := io.ReadAll(s)
				if err != nil {
					t.Errorf("ReadAll: %v", err)
				}
				trailers := []Field{MakeField("x-trailer", s.Trailers()[0].Value)}
				if err := s.Send(Message{Body: body, Trailers: trailers}); err != nil {
					t.Errorf("Send: %v", err)
				}
				s.Finish()
				s.Finish()
			})
			m.stream.Reset(InternalError)
			m.stream.CloseRead()
			m.stream.Finish()
			_, writeErr := m.stream.Write([]byte("late"))
			_, readErr := m.stream.Read(make([]byte, 1))
			if writeErr != ErrEnded || readErr != ErrEnded || m.stream.SetReadDeadline(time.Now()) != ErrEnded {
				t.Errorf("got %v and %v of the first stream, want %v", writeErr, readErr, ErrEnded)
			}
			states <- state{next, weak.Make(m)}
		}), Config{})
		p := f.peer().Request(1, false).Data(1, "abcdef", false).Flush()
		p.Want("headers 1 :status=200", `data 1 "one "`)
		now := testnet.Receive(t, "the move", states)
		testnet.Eventually(t, "the first handler's end", func() bool {
			runtime.GC()
			return now.handler.Value() == nil
		})
		p.Data(1, "ghi", false).Headers(1, true, "x-trailer", "yes").Flush()
		s := &now.next.stream
		if s.ID() != 1 || s.Err() != nil || s.Conn().Streams() != 1 {
			t.Errorf("got stream %d of %d, with %v", s.ID(), s.Conn().Streams(), s.Err())
		}
		s.Resume()
		p.Want(`data 1 "defghi"`, "headers 1 x-trailer=yes end")
		testnet.Eventually(t, "the stream's end", func() bool { return f.server.Stats().Streams == 0 })
		if n := len(now.next.cancelled); n > 0 {
			t.Errorf("Cancelled was called: %v", <-now.next.cancelled)
		}
	})
}

// TestMoveEnds: the deadlines of a stream, its reset, and the connection's end, come to who has it.
func TestMoveEnds(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		nexts := make(chan *moved, 1)
		f := start(moveWith(func(m *mover) {
			if m.stream.ID() == 1 {
				_ = m.stream.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
				_ = m.stream.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			}
			nexts <- m.move(nil)
			if m.stream.ID() == 5 {
				panic("after the move") // ends nothing
			}
		}), Config{Log: slog.New(slog.DiscardHandler)})
		p := f.peer().Request(1, false).Flush()
		late := testnet.Receive(t, "a moved stream", nexts)
		p.Want("reset 1 INTERNAL_ERROR")
		if err := testnet.Receive(t, "the deadline", late.cancelled); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v of a deadline", err)
		}
		p.Request(3, true).Flush()
		reset := testnet.Receive(t, "a moved stream", nexts)
		p.Reset(3, Cancel).Flush()
		var of *StreamError
		if err := testnet.Receive(t, "the reset", reset.cancelled); !errors.As(err, &of) || !of.Remote || of.Code != Cancel || of.ID != 3 {
			t.Errorf("got %v of a reset", err)
		}
		p.Request(5, true).Flush()
		lost := testnet.Receive(t, "a moved stream", nexts)
		f.server.Close()
		var gone *ConnError
		if err := testnet.Receive(t, "the end", lost.cancelled); !errors.As(err, &gone) {
			t.Errorf("got %v of the connection's end", err)
		}
		for _, m := range []*moved{late, reset, lost} {
			m.stream.Finish()
		}
		testnet.Eventually(t, "the streams' end", func() bool { return f.server.Stats().Streams == 0 })
	})
}

// TestMoveTooLate: a stream that has ended can be moved, and says so.
func TestMoveTooLate(t *testing.T) {
	type result struct {
		err    error
		called bool // the next handler's Cancelled
		m      *mover
	}
	results := make(chan result, 1)
	begun := make(chan bool)
	f := serve(t, moveWith(func(m *mover) {
		begun <- true
		for m.stream.Err() == nil {
			runtime.Gosched()
		}
		next := m.move(nil)
		r := result{next.stream.Err(), len(next.cancelled) > 0, m}
		_, err := next.stream.Write([]byte("late"))
		if err != r.err {
			t.Errorf("got %v of a Write, want %v", err, r.err)
		}
		next.stream.Finish()
		results <- r
	}), Config{})
	p := f.peer().Request(1, false).Flush()
	testnet.Receive(t, "a handler", begun)
	p.Reset(1, Cancel).Flush()
	var of *StreamError
	r := testnet.Receive(t, "a result", results)
	if !errors.As(r.err, &of) || r.called {
		t.Errorf("got %v, and a call of Cancelled: %v", r.err, r.called)
	}
	testnet.Eventually(t, "a call of the first handler's Cancelled", r.m.cancelled.Load)
	testnet.Eventually(t, "the stream's end", func() bool { return f.server.Stats().Streams == 0 })
}

// TestMoveWhileReading: a Read of the first stream that waits fails, and takes nothing that comes later.
func TestMoveWhileReading(t *testing.T) {
	for _, room := range []int{1, 2 * fillingBytes} {
		failed, nexts := make(chan error, 1), make(chan *moved, 1)
		f := serve(t, moveWith(func(m *mover) {
			go func() {
				_, err := m.stream.ReadFull(make([]byte, room))
				failed <- err
			}()
			for !m.stream.isReading() {
				runtime.Gosched()
			}
			nexts <- m.move(func(s *Stream) {
				body, _ := io.ReadAll(s)
				_ = s.Send(Message{Status: 200, Body: body, End: true})
				s.Finish()
			})
		}), Config{})
		p := f.peer().Request(1, false).Flush()
		next := testnet.Receive(t, "a moved stream", nexts)
		body := strings.Repeat("b", 3*fillingBytes)
		p.Data(1, body, true).Flush()
		if err := testnet.Receive(t, "the Read's end", failed); err != ErrEnded {
			t.Errorf("got %v of a Read of the first stream, want %v", err, ErrEnded)
		}
		next.stream.Resume()
		p.Want("headers 1 :status=200", `data 1 "`+body+`" end`)
	}
}

// isReading reports whether a Read waits.
func (s *Stream) isReading() bool {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	return s.cond != nil
}
