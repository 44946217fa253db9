package h2

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// hello answers by a short body.
func hello(s *Stream, _ *Request) {
	_ = s.Send(Message{Status: 200, Fields: []Field{MakeField("content-type", "text/plain")}, Body: []byte("Hello, World!"), End: true, Hold: true})
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

// TestClient plays the requests of net/http's client.
func TestClient(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(echo), Config{})
		client := f.client()
		for _, size := range []int{0, 1, 1000, 1024, 5000, 16 << 10, 100 << 10, 3 << 20} {
			body := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
			req, err := http.NewRequest("POST", f.url("/echo"), io.MultiReader(bytes.NewReader(body)))
			if err != nil {
				t.Fatal(err)
			}
			req.Trailer = http.Header{"X-Size": {fmt.Sprint(size)}}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || !bytes.Equal(got, body) || resp.Trailer.Get("X-Size") != fmt.Sprint(size) {
				t.Errorf("%d bytes: got %d back, trailers %v, %v", size, len(got), resp.Trailer, err)
			}
		}
	})
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
		p.request(1, true).flush().want("headers 1 :status=200", `data 1 "" end`)
		p.request(3, false).data(3, "abc", false).flush().want("headers 3 :status=200", `data 3 "abc"`)
		p.data(3, "def", false).flush().want(`data 3 "def"`)
		p.frame(typePing, 0, 0, []byte("12345678")).flush().want("pong 3132333435363738")
		p.headers(3, true, "x-a", "b").flush().want("headers 3 x-a=b end")
		p.request(5, true, "connection", "close").flush().want("headers 5 :status=400 end")
		p.frame(typeData, 0, 0, nil).flush().want("goaway 5 PROTOCOL_ERROR", "end")
	})
}

// TestWindow: a body goes as far as the client's windows, and its handler waits for them, while
// others go on.
func TestWindow(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		f := start(HandlerFunc(func(s *Stream, r *Request) {
			_ = s.Send(Message{Status: 200, Body: []byte("0123456789"), End: true})
		}), Config{})
		p := f.peer(4, 4) // SETTINGS_INITIAL_WINDOW_SIZE
		p.request(1, true).flush().want("headers 1 :status=200", `data 1 "0123"`)
		p.request(3, true).flush().want("headers 3 :status=200", `data 3 "0123"`)
		p.window(1, 2).flush().want(`data 1 "45"`)
		p.window(3, 100).flush().want(`data 3 "456789" end`)
		p.frame(typeSettings, 0, 0, []byte{0, 4, 0, 0, 0, 6}).flush().want(`data 1 "67"`)
		p.reset(1, Cancel).request(5, true).flush().want("headers 5 :status=200", `data 5 "012345"`)
		p.window(5, 4).flush().want(`data 5 "6789" end`)
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
		p.request(1, false).flush().want("headers 1 :status=200").reset(1, Cancel).flush()
		for range 2 {
			var reset *StreamError
			if err := testnet.Receive(t, "an error", errs); !errors.As(err, &reset) || reset.Code != Cancel || !reset.Remote || reset.ID != 1 {
				t.Errorf("got %v, want the reset", err)
			}
		}
		p.request(3, true).flush().want("headers 3 :status=200", `data 3 "x"`, "reset 3 INTERNAL_ERROR")
		if err := testnet.Receive(t, "the end of the body", errs); err != io.EOF {
			t.Errorf("got %v, want EOF", err)
		}
		if err := testnet.Receive(t, "the result of Write", errs); err != nil {
			t.Errorf("Write: %v", err)
		}
		p.request(5, false).flush().want("headers 5 :status=200")
		p.c.Close()
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
		p.request(1, false).flush()
		testnet.Receive(t, "the handler's begin", begun)
		p.want("headers 1 :status=200")
		done := make(chan bool)
		go func() { f.shutdown(); close(done) }()
		p.want("goaway 2147483647 NO_ERROR", "goaway 1 NO_ERROR")
		p.data(1, "late", true).flush().want(`data 1 "late"`, `data 1 "" end`, "end")
		p.c.Close()
		testnet.Receive(t, "Shutdown's return", done)
	})
}
