package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// TestInterleaved: long bodies of several streams take turns, frame by frame, and a short one
// between them isn't held up by their windows.
func TestInterleaved(t *testing.T) {
	const size = 300 << 10
	body := bytes.Repeat([]byte("x"), size)
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		m := Message{Status: 200, Body: body, End: true}
		if r.Path == "/short" {
			m.Body = []byte("short")
		}
		if err := s.Send(m); err != nil {
			t.Errorf("%s: %v", r.Path, err)
		}
	}), Config{})
	// A handler may begin late, so the client opens its window when all of them wait for it.
	waiting := func(n int) {
		t.Helper()
		testnet.Eventually(t, fmt.Sprint(n, " streams that wait for the window"), func() bool { return f.server.Stats().Stalled == n })
	}
	p := f.peer(4, 1<<20)
	p.Request(1, true).Request(3, true).Request(5, true).Flush()
	waiting(3)
	got := map[uint32]int{}
	read := func() {
		var id uint32
		var text string
		frame := p.Next()
		if _, err := fmt.Sscanf(frame, "data %d %q", &id, &text); err == nil {
			got[id] += len(text)
		}
	}
	for got[1]+got[3]+got[5] < 65535 { // the connection's window
		read()
	}
	p.Headers(7, true, ":method", "GET", ":scheme", "http", ":path", "/short", ":authority", "x").Flush()
	waiting(4)
	p.Window(0, 10*16384).Flush()
	before := [3]int{got[1], got[3], got[5]}
	for got[1]+got[3]+got[5]+got[7] < 65535+10*16384 {
		read()
	}
	for i, id := range []uint32{1, 3, 5} {
		if n := got[id] - before[i]; got[id] < size && n < 3*16384-5 {
			t.Errorf("stream %d: got %d bytes of ten frames for four streams", id, n)
		}
	}
	if got[7] != 5 {
		t.Errorf("got %d bytes of the short answer, want 5", got[7])
	}
	p.Window(0, 1<<20).Flush()
	for got[1]+got[3]+got[5] < 3*size {
		read()
	}
}

// TestDeadlines: a read deadline ends reads, a write deadline the stream.
func TestDeadlines(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		errs, sends := make(chan error, 10), make(chan *Stream, 1)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			_ = s.Send(Message{Status: 200})
			switch s.ID() {
			case 1:
				errs <- s.SetReadDeadline(time.Now().Add(time.Hour))
				errs <- s.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
				_, err := io.ReadAll(s)
				errs <- err
			case 3:
				errs <- s.SetReadDeadline(time.Now().Add(-time.Second))
				errs <- s.SetWriteDeadline(time.Now().Add(testnet.HangTimeout))
				sends <- s
				errs <- s.Send(Message{Body: make([]byte, 100), End: true})
			}
		}), Config{})
		p := f.peer(4, 10)
		p.Request(1, false).Data(1, "abc", false).Flush().Want("headers 1 :status=200", "reset 1 INTERNAL_ERROR")
		for i := range 2 {
			if err := testnet.Receive(t, "a result", errs); err != nil {
				t.Errorf("SetReadDeadline %d: %v", i, err)
			}
		}
		if err := testnet.Receive(t, "the result of Read", errs); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Read: got %v, want a deadline's error", err)
		}
		p.Request(3, false).Flush().Want("headers 3 :status=200", `data 3 "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"`)
		s := testnet.Receive(t, "the stream", sends)
		if err := s.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil { // while Send waits
			t.Errorf("SetWriteDeadline: %v", err)
		}
		p.Want("reset 3 INTERNAL_ERROR")
		for range 2 {
			if err := testnet.Receive(t, "a result", errs); err != nil {
				t.Errorf("setting a deadline: %v", err)
			}
		}
		var reset *StreamError
		if err := testnet.Receive(t, "the result of Send", errs); !errors.As(err, &reset) || reset.Remote {
			t.Errorf("Send: got %v, want our reset", err)
		}
	})
}

// TestEndOfHandler: a handler that panics or ends its goroutine ends its stream, and no other.
func TestEndOfHandler(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		var log testnet.Log
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			switch s.ID() {
			case 1:
				panic("of the handler")
			case 3:
				runtime.Goexit()
			case 5:
				_ = s.Send(Message{Status: 200, End: true})
				panic("behind the answer")
			case 7:
				hello(s, r)
				if _, err := s.Write([]byte("x")); err != ErrEnded {
					t.Errorf("Write behind the end: got %v, want %v", err, ErrEnded)
				}
			}
		}), Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
		p := f.peer()
		p.Request(1, true).Flush().Want("reset 1 INTERNAL_ERROR")
		p.Request(3, true).Flush().Want("reset 3 INTERNAL_ERROR")
		p.Request(5, false).Flush().Want("headers 5 :status=200 end", "reset 5 INTERNAL_ERROR")
		p.Request(7, false).Flush().Want("headers 7 :status=200 content-type=text/plain", `data 7 "Hello, World!" end`, "reset 7 NO_ERROR")
		if !log.Has("of the handler") || !log.Has("behind the answer") || log.Has("goexit") {
			t.Errorf("got the log %q", log.String())
		}
	})
}

// TestFieldsAreChecked: a header that another server could misread is not sent.
func TestFieldsAreChecked(t *testing.T) {
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		for _, m := range []Message{
			{Status: 200, Fields: []Field{MakeField("a", "b\r\nc: d")}},
			{Status: 200, Fields: []Field{MakeField("A", "b")}},
			{Status: 200, Fields: []Field{MakeField(":path", "/")}},
			{Status: 200, Trailers: []Field{MakeField("a b", "c")}},
			{Status: 99},
			{Status: 1000},
		} {
			if err := s.Send(m); err == nil {
				t.Errorf("%+v was sent", m)
			}
		}
		hello(s, r)
	}), Config{})
	f.peer().Request(1, true).Flush().Want(helloTo(1)...)
}

// TestHandlersWait: no more handlers run than streams may be open, though clients reset theirs.
func TestHandlersWait(t *testing.T) {
	begun, goOn := make(chan uint32, 10), make(chan bool)
	f := serve(t, HandlerFunc(func(s *Stream, r *Request) {
		begun <- s.ID()
		<-goOn
		hello(s, r)
	}), Config{Streams: 2})
	p := f.peer()
	p.Request(1, true).Request(3, true).Flush()
	seen := map[uint32]bool{testnet.Receive(t, "a handler", begun): true, testnet.Receive(t, "a handler", begun): true}
	p.Reset(1, Cancel).Reset(3, Cancel).Request(5, true).Request(7, true).Reset(5, Cancel)
	p.Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	select {
	case id := <-begun:
		t.Errorf("the handler of stream %d runs beside those of %v", id, seen)
	default:
	}
	close(goOn)
	if id := testnet.Receive(t, "the next handler", begun); id != 7 {
		t.Errorf("the handler of stream %d runs, want that of 7: 5 was reset", id)
	}
	p.Want(helloTo(7)...)
}

// TestTimeouts: a connection ends that says nothing, or nothing any more.
func TestTimeouts(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		silent := start(HandlerFunc(hello), Config{BeginTimeout: 50 * time.Millisecond}).dial()
		if _, err := io.Copy(io.Discard, silent); err != nil && !strings.Contains(err.Error(), "reset") && err != io.ErrUnexpectedEOF && err != io.EOF {
			t.Errorf("a client that says nothing: got %v, want the end", err)
		}
		f := start(HandlerFunc(hello), Config{IdleTimeout: 20 * time.Millisecond})
		f.peer().Request(1, true).Flush().Want(helloTo(1)...).Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR", "end")
	})
}

// states writes down the states of connections.
type states struct {
	HandlerFunc
	mu  sync.Mutex
	got []ConnState
	end chan bool
}

func (s *states) ConnState(c *Conn, state ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, state)
	if state == Closed {
		close(s.end)
	}
}

// TestConnState: the states come in order, Ready before all others and Active before the handler.
func TestConnState(t *testing.T) {
	s := &states{end: make(chan bool)}
	s.HandlerFunc = func(st *Stream, r *Request) {
		s.mu.Lock()
		if n := len(s.got); n == 0 || s.got[n-1] != Active {
			t.Errorf("the handler runs in the states %v", s.got)
		}
		s.mu.Unlock()
		hello(st, r)
	}
	f := serve(t, s, Config{})
	p := f.peer()
	for id := uint32(1); id < 100; id += 2 {
		p.Request(id, true).Flush().Want(helloTo(id)...)
	}
	p.Conn.Close()
	testnet.Receive(t, "the end", s.end)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, state := range s.got {
		want := []ConnState{Idle, Active}[i%2]
		if i == 0 {
			want = Ready
		}
		if state != want && i < len(s.got)-1 {
			t.Fatalf("got the states %v", s.got)
		}
	}
}

// TestClosedIsLast: no state comes behind Closed, although a handler returns later.
func TestClosedIsLast(t *testing.T) {
	begun, proceed := make(chan bool), make(chan bool)
	s := &states{end: make(chan bool)}
	s.HandlerFunc = func(*Stream, *Request) {
		begun <- true
		<-proceed
	}
	f := serve(t, s, Config{})
	p := f.peer()
	p.Request(1, true).Flush()
	testnet.Receive(t, "the handler's call", begun)
	p.Conn.Close()
	testnet.Receive(t, "the end", s.end)
	close(proceed)
	testnet.Eventually(t, "the handler's return", func() bool { return f.server.Stats().Streams == 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := []ConnState{Ready, Active, Closed}; !slices.Equal(s.got, want) {
		t.Errorf("got the states %v, want %v", s.got, want)
	}
}

// TestHurry: a Send that waits for the client resets the stream, and so does a later one that would
// have to. Both send what they can before.
func TestHurry(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		sent := make(chan error, 2)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			if r.Path == "/early" {
				s.Hurry()
			} else {
				time.AfterFunc(time.Millisecond, s.Hurry)
			}
			sent <- s.Send(Message{Status: 200, Body: []byte("abc")})
			sent <- s.Send(Message{Body: []byte("defg"), End: true})
		}), Config{})
		for _, path := range []string{"/", "/early"} {
			p := f.peer(4, 5) // an initial window of five bytes
			p.Headers(1, true, ":method", "GET", ":scheme", "http", ":authority", "a", ":path", path).Flush()
			p.Want("headers 1 :status=200", `data 1 "abc"`, `data 1 "de"`, "reset 1 CANCEL")
			if err := testnet.Receive(t, "the first part", sent); err != nil {
				t.Errorf("%s: got %v for what fits into the window", path, err)
			}
			var reset *StreamError
			if err := testnet.Receive(t, "the second part", sent); !errors.As(err, &reset) || reset.Code != Cancel {
				t.Errorf("%s: got %v, want a reset", path, err)
			}
		}
	})
}

// lax is a handler that takes bodies of any length.
type lax struct{ HandlerFunc }

func (l lax) Accept(c *Conn, r *Request) StreamHandler {
	r.ContentLength = -1
	return l.HandlerFunc.Accept(c, r)
}

// TestAnyRequest: a handler of another protocol than HTTP gets any target and any length.
func TestAnyRequest(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		echo := func(s *Stream, r *Request) {
			body, err := io.ReadAll(s)
			_ = s.Send(Message{Status: 200, Body: fmt.Appendf(body, " %v %v", r.BadTarget, err), End: true})
		}
		f := start(lax{echo}, Config{AnyTarget: true})
		p := f.peer()
		p.Headers(1, false, ":scheme", "unix", "content-length", "1").Data(1, "abc", true).Flush()
		p.Want("headers 1 :status=200", `data 1 "abc true <nil>" end`)
		p.Request(3, false, "content-length", "9").Data(3, "abc", true).Flush()
		p.Want("headers 3 :status=200", `data 3 "abc false <nil>" end`)
	})
}

// TestSendAfterClose: a body for a connection that is closed takes no memory for the output, which
// nothing would give back.
func TestSendAfterClose(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		errs := make(chan error, 2)
		f := start(HandlerFunc(func(s *Stream, _ *Request) {
			_ = s.Send(Message{Status: 200})
			_ = s.Conn().Close()
			errs <- s.Send(Message{Body: []byte("x")})
			errs <- s.Send(Message{Body: []byte("x"), End: true, Hold: true})
		}), Config{})
		f.peer().Request(1, true).Flush()
		for range 2 {
			if err := testnet.Receive(t, "the error of Send", errs); err == nil {
				t.Error("Send succeeded behind Close")
			}
		}
		testnet.Eventually(t, "the memory's return", func() bool { return pool.CheckLeaks() == nil })
	})
}
