package httpadapter

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestDetachWriteTimeout: the http.Server's WriteTimeout bounds each send of a Stream, and not the time
// for which it waits, wherever it is served.
func TestDetachWriteTimeout(t *testing.T) {
	const timeout = 250 * time.Millisecond // a handshake must be done by then, on a busy machine, too
	configure := func(f *fixture) { f.srv.WriteTimeout = timeout }
	for name, start := range map[string]func(t *testing.T, h http.HandlerFunc) (string, *http.Client){
		"HTTP/1.1": func(t *testing.T, h http.HandlerFunc) (string, *http.Client) {
			return clientOf(t, startOurs(t, h, configure), nil, nil)
		},
		"h2c": func(t *testing.T, h http.HandlerFunc) (string, *http.Client) {
			protocols := new(http.Protocols)
			protocols.SetUnencryptedHTTP2(true)
			return clientOf(t, start(t, h, func(f *fixture) { configure(f); f.srv.Protocols = protocols }), nil, protocols)
		},
		"net/http": func(t *testing.T, h http.HandlerFunc) (string, *http.Client) {
			return startTimed(t, h, timeout, false)
		},
		"net/http's HTTP/2": func(t *testing.T, h http.HandlerFunc) (string, *http.Client) {
			return startTimed(t, h, timeout, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			streams, ends := make(chan *Stream, 1), make(chan error, 1)
			url, client := start(t, func(w http.ResponseWriter, r *http.Request) {
				_ = http.NewResponseController(w).Flush()
				_ = Detach(w, r, func(s *Stream) {
					s.OnEnd(func(err error) { ends <- err })
					streams <- s
				})
			})
			a := get(t, client, url)
			s := testnet.Receive(t, "the Stream", streams)
			defer s.Abort(nil)
			lines := bufio.NewReader(a.Body)
			for range 2 {
				time.Sleep(2 * timeout) // what waits is the server: nothing tells of a deadline that doesn't count
				_, _ = io.WriteString(s, "event\n")
				s.Flush()
				if got, err := lines.ReadString('\n'); err != nil {
					t.Fatalf("got %q and %v", got, err)
				}
			}
			s.SetLimit(64<<20, false)
			for range 16 { // the client takes none of it
				_, _ = s.Write(make([]byte, 1<<20))
				s.Flush()
			}
			if err := testnet.Receive(t, "the end", ends); err == nil {
				t.Error("a client that takes nothing was not cut")
			}
		})
	}
}

// startTimed starts a server of net/http with a WriteTimeout.
func startTimed(t *testing.T, h http.HandlerFunc, timeout time.Duration, http2 bool) (string, *http.Client) {
	s := httptest.NewUnstartedServer(h)
	s.Config.WriteTimeout = timeout
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s.URL, s.Client()
}

// TestDetachOwnDeadline: a deadline that the program has set counts instead of the WriteTimeout.
func TestDetachOwnDeadline(t *testing.T) {
	var o deadlineOutlet
	var s Stream
	s.sender.Init(&o)
	s.limitSend(false)
	_ = s.SetWriteDeadline(time.Unix(1, 0))
	s.limitSend(true)
	if got := o.sets; len(got) != 2 || !got[0].IsZero() || got[1] != time.Unix(1, 0) {
		t.Errorf("the deadlines %v were set", got)
	}
}

// deadlineOutlet is an outlet that notes its deadlines.
type deadlineOutlet struct {
	outlet
	sets []time.Time
}

func (o *deadlineOutlet) writeTimeout() time.Duration { return time.Hour }
func (o *deadlineOutlet) setWriteDeadline(t time.Time) error {
	o.sets = append(o.sets, t)
	return nil
}
