package httpadapter

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// streamTaker is a StreamHandler for paths that begin with /s.
type streamTaker struct {
	http.Handler
	h2.HandlerFunc

	mu     sync.Mutex
	states []h2.ConnState
	pings  int
}

func (s *streamTaker) Streams() (h2.Handler, func(*h2.Request) bool) {
	return s, func(r *h2.Request) bool { return strings.HasPrefix(r.Path, "/s") }
}

func (s *streamTaker) ConnState(_ *h2.Conn, state h2.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states = append(s.states, state)
}

func (s *streamTaker) Ping(*h2.Conn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pings++
}

func newStreamTaker() *streamTaker {
	return &streamTaker{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "request") }),
		HandlerFunc: func(s *h2.Stream, r *h2.Request) {
			if r.Path == "/s/panic" {
				panic("as told")
			}
			_ = s.Send(h2.Message{Status: 200, Body: []byte("stream"), End: true})
		},
	}
}

// TestStreamHandler: the streams that a handler takes don't pass through net/http, unless the
// handler is within another. It learns of all connections and PINGs.
func TestStreamHandler(t *testing.T) {
	if !canPark {
		t.Skip("HTTP2 has no effect here")
	}
	for _, secure := range []bool{false, true} {
		testnet.NoLeaks(t)
		taker := newStreamTaker()
		f := startHTTP2(t, withAdapter, secure, func(srv *http.Server) { srv.Handler = taker },
			MaxAge(0, 1000)) // whose handler is none of the user's
		client := f.http2Client()
		for path, want := range map[string]string{"/": "request", "/s": "stream", "/s/2": "stream", "/x": "request"} {
			if got := f.get(client, path); got != want {
				t.Errorf("%s: got %q, want %q", path, got, want)
			}
		}
		if resp, err := client.Get(f.url("/s/panic")); err == nil {
			t.Errorf("a stream whose handler panics: got %s", resp.Status)
			resp.Body.Close()
		}
		testnet.Eventually(t, "the panic in the log", func() bool { return f.log.Has("as told") })
		client.CloseIdleConnections()
		testnet.Eventually(t, "the connection's end", func() bool {
			taker.mu.Lock()
			defer taker.mu.Unlock()
			n := len(taker.states)
			return n > 2 && taker.states[0] == h2.Ready && taker.states[1] == h2.Active && taker.states[n-1] == h2.Closed
		})
	}

	taker := newStreamTaker()
	f := startHTTP2(t, withAdapter, false, func(srv *http.Server) { srv.Handler = http.HandlerFunc(taker.ServeHTTP) })
	if got := f.get(f.http2Client(), "/s"); got != "request" {
		t.Errorf("behind a middleware: got %q, want net/http's", got)
	}

	taker = newStreamTaker()
	f = startHTTP2(t, withAdapter, false, func(srv *http.Server) { srv.Handler = taker })
	nc := testnet.Dial(t, f.ln)
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(testnet.HangTimeout))
	frames.NewPeer(t, nc).Frame(frames.Ping, 0, 0, make([]byte, 8)).Flush().Want("pong 0000000000000000")
	if taker.mu.Lock(); taker.pings != 1 {
		t.Errorf("got %d PINGs, want 1", taker.pings)
	}
	taker.mu.Unlock()
}
