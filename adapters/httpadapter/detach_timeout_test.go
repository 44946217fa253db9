package httpadapter

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestDetachWriteTimeout: the http.Server's WriteTimeout bounds each send of an Answer, and not the time
// for which it waits, wherever it is served.
func TestDetachWriteTimeout(t *testing.T) {
	type starter func(t *testing.T, h http.HandlerFunc, timeout time.Duration) (string, *http.Client)
	for name, start := range map[string]starter{
		"HTTP/1.1": func(t *testing.T, h http.HandlerFunc, timeout time.Duration) (string, *http.Client) {
			return clientOf(t, startOurs(t, h, func(f *fixture) { f.srv.WriteTimeout = timeout }), nil, nil)
		},
		"h2c": func(t *testing.T, h http.HandlerFunc, timeout time.Duration) (string, *http.Client) {
			protocols := clearHTTP2(false)
			f := start(t, h, func(f *fixture) { f.srv.WriteTimeout, f.srv.Protocols = timeout, protocols })
			return clientOf(t, f, nil, protocols)
		},
		"net/http": func(t *testing.T, h http.HandlerFunc, timeout time.Duration) (string, *http.Client) {
			return startTimed(t, h, timeout, false)
		},
		"net/http's HTTP/2": func(t *testing.T, h http.HandlerFunc, timeout time.Duration) (string, *http.Client) {
			return startTimed(t, h, timeout, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they wait most of the time
			// On a busy machine the timeout may pass during the handshake, or before the handler flushes.
			wantOfTimeout(t, "event event", 100*time.Millisecond, func(timeout time.Duration) string {
				streams, ends := make(chan *Answer, 1), make(chan error, 1)
				url, client := start(t, func(w http.ResponseWriter, r *http.Request) {
					_ = http.NewResponseController(w).Flush()
					_ = Detach(w, r, func(s *Answer) {
						s.OnEnd(func(err error) { ends <- err })
						streams <- s
					})
				}, timeout)
				return eventsThenStall(t, client, url, timeout, streams, ends)
			})
		})
	}
}

// eventsThenStall returns the events of a detached answer that waits for longer than the timeout before
// each, or the error that came instead. Then the client takes nothing more, and must be cut.
func eventsThenStall(t *testing.T, client *http.Client, url string, timeout time.Duration, streams <-chan *Answer, ends <-chan error) string {
	a, err := client.Get(url)
	if err != nil {
		return err.Error()
	}
	defer a.Body.Close()
	s := testnet.Receive(t, "the Answer", streams)
	defer s.Abort(nil)
	var events []string
	for lines := bufio.NewReader(a.Body); len(events) < 2; {
		time.Sleep(2 * timeout) // what waits is the server: nothing tells of a deadline that doesn't count
		_, _ = io.WriteString(s, "event\n")
		s.Flush()
		line, err := lines.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		events = append(events, strings.TrimSpace(line))
	}
	s.SetLimit(64<<20, false)
	for range 16 { // the client takes none of it
		_, _ = s.Write(make([]byte, 1<<20))
		s.Flush()
	}
	if err := testnet.Receive(t, "the end", ends); err == nil {
		t.Error("a client that takes nothing was not cut")
	}
	return strings.Join(events, " ")
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
	var s Answer
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

func (o *deadlineOutlet) WriteTimeout() time.Duration { return time.Hour }
func (o *deadlineOutlet) SetWriteDeadline(t time.Time) error {
	o.sets = append(o.sets, t)
	return nil
}
