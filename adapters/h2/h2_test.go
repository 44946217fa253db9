package h2

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// hello answers by a short body.
func hello(s *Stream, _ *Request) {
	_ = s.Send(Message{Status: 200, Fields: []Field{MakeField("content-type", "text/plain")}, Body: []byte("Hello, World!"), End: true, Hold: true})
}

// helloTo returns the frames of hello's answer.
func helloTo(id uint32) []string {
	return []string{fmt.Sprintf("headers %d :status=200 content-type=text/plain", id), fmt.Sprintf(`data %d "Hello, World!" end`, id)}
}

// echo sends the body back, and the trailers.
func echo(s *Stream, r *Request) {
	if err := s.Send(Message{Status: 200}); err != nil {
		return
	}
	if _, err := io.Copy(s, s); err != nil {
		s.Reset(InternalError)
		return
	}
	m := Message{End: true, Hold: true}
	if t := s.Trailers(); len(t) > 0 {
		m.Trailers = t
	}
	_ = s.Send(m)
}

// TestManyStreams has many streams at once, over one connection and several.
func TestManyStreams(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(echo), Config{})
		var wg sync.WaitGroup
		for range 3 {
			client := f.client()
			for i := range 40 {
				wg.Go(func() {
					body := strings.Repeat(fmt.Sprint(i, " "), 1000*i)
					resp, err := client.Post(f.url("/"), "text/plain", strings.NewReader(body))
					if err != nil {
						t.Errorf("stream %d: %v", i, err)
						return
					}
					defer resp.Body.Close()
					if got, err := io.ReadAll(resp.Body); err != nil || string(got) != body {
						t.Errorf("stream %d: got %d bytes of %d, %v", i, len(got), len(body), err)
					}
				})
			}
		}
		wg.Wait()
		f.shutdown()
	})
}

// TestFrames plays frames that show who waits for whom.
func TestFrames(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(echo), Config{})
		p := f.peer()
		p.Request(1, true).Flush().Want("headers 1 :status=200", `data 1 "" end`)
		p.Request(3, false).Data(3, "abc", false).Flush().Want("headers 3 :status=200", `data 3 "abc"`)
		p.Data(3, "def", false).Flush().Want(`data 3 "def"`)
		p.Frame(frames.Ping, 0, 0, []byte("12345678")).Flush().Want("pong 3132333435363738")
		p.Headers(3, true, "x-a", "b").Flush().Want("headers 3 x-a=b end")
		p.Request(5, true, "connection", "close").Flush().Want("headers 5 :status=400", "reset 5 PROTOCOL_ERROR")
		p.Request(7, true, "content-length", "1").Flush().Want("reset 7 PROTOCOL_ERROR")
		p.Frame(frames.Data, 0, 0, nil).Flush().Want("goaway 7 PROTOCOL_ERROR", "end")
	})
}

// TestReset: the handler learns of the client's reset, and the client of the handler's.
func TestReset(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		errs := make(chan error, 10)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			_ = s.Send(Message{Status: 200})
			_, err := s.Read(make([]byte, 100))
			errs <- err
			_, err = s.Write([]byte("x"))
			errs <- err
		}), Config{})
		p := f.peer()
		p.Request(1, false).Flush().Want("headers 1 :status=200").Reset(1, Cancel).Flush()
		for range 2 {
			var reset *StreamError
			if err := testnet.Receive(t, "an error", errs); !errors.As(err, &reset) || reset.Code != Cancel || !reset.Remote || reset.ID != 1 {
				t.Errorf("got %v, want the reset", err)
			}
		}
		p.Request(3, true).Flush().Want("headers 3 :status=200", `data 3 "x"`, "reset 3 INTERNAL_ERROR")
		if err := testnet.Receive(t, "the end of the body", errs); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
		if err := testnet.Receive(t, "the result of Write", errs); err != nil {
			t.Errorf("Write: %v", err)
		}
		p.Request(5, false).Flush().Want("headers 5 :status=200")
		p.Conn.Close()
		for range 2 {
			var end *ConnError
			if err := testnet.Receive(t, "an error", errs); !errors.As(err, &end) {
				t.Errorf("got %v, want that the connection has ended", err)
			}
		}
	})
}

// TestShutdown: streams that are open are served, the client is told by two GOAWAYs, and the
// connection ends.
func TestShutdown(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		begun := make(chan bool)
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			if r.Path == "/" {
				begun <- true
			}
			echo(s, r)
		}), Config{})
		p := f.peer()
		p.Request(1, false).Flush()
		testnet.Receive(t, "the handler's begin", begun)
		p.Want("headers 1 :status=200")
		done := make(chan bool)
		go func() { f.shutdown(); close(done) }()
		p.Want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		p.Data(1, "late", true).Flush().Want(`data 1 "late"`, `data 1 "" end`, "end")
		p.Conn.Close()
		testnet.Receive(t, "Shutdown's return", done)
	})
}

// TestEngineNet: a server works where the environment has taken the engine out.
func TestEngineNet(t *testing.T) {
	t.Setenv("PERCOREDEBUG", "engine=net")
	f := serve(t, HandlerFunc(echo), Config{})
	const text = "through package net"
	resp, err := f.client().Post(f.url("/"), "text/plain", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); string(got) != text || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, text)
	}
}
