package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestDetachNoBody: an answer without a body ends by itself, wherever it is served, if the handler or
// the Answer has sent its header. Nothing of it is left: no Stream, and nothing in the connection's way.
func TestDetachNoBody(t *testing.T) {
	answers := []struct {
		method string
		status int
	}{
		{"HEAD", http.StatusOK}, {"HEAD", http.StatusNotFound}, {"HEAD", http.StatusNoContent},
		{"GET", http.StatusNoContent}, {"GET", http.StatusNotModified},
		{"POST", http.StatusNoContent}, {"DELETE", http.StatusNoContent}, {"OPTIONS", http.StatusNoContent},
	}
	ways := []string{"flushed", "fixed", "begin", "later"} // before Detach, and by the Answer
	for _, arm := range detachedArms {
		t.Run(arm.name, func(t *testing.T) {
			streams, ends := make(chan *Answer, 1), make(chan error, 1)
			url, client := arm.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status, way := detachedWay(r)
				if slices.Contains(ways[:2], way) {
					w.WriteHeader(status)
				}
				if way == "flushed" {
					_ = http.NewResponseController(w).Flush()
				}
				if err := Detach(w, r, func(s *Answer) {
					s.OnEnd(func(err error) { ends <- err })
					if way == "begin" {
						s.WriteHeader(status)
					}
					if way != "later" {
						_, _ = io.WriteString(s, "none")
						s.Flush()
					}
					streams <- s
				}); err != nil {
					t.Error(err)
				}
			}))
			for _, answer := range answers {
				for _, way := range ways {
					testDetachNoBody(t, client, answer.method, fmt.Sprintf("%s/%d/%s", url, answer.status, way), streams, ends)
				}
			}
		})
	}
}

// detachedWay returns what the path of a request of TestDetachNoBody asks for.
func detachedWay(r *http.Request) (status int, way string) {
	number, way, _ := strings.Cut(r.URL.Path[1:], "/")
	status, _ = strconv.Atoi(number)
	return status, way
}

func testDetachNoBody(t *testing.T, client *http.Client, method, url string, streams <-chan *Answer, ends <-chan error) {
	t.Helper()
	var body io.Reader
	if method == "POST" {
		body = strings.NewReader(strings.Repeat("b", 10_000))
	}
	r, err := http.NewRequest(method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	status, way := detachedWay(r)
	answered := make(chan error, 1)
	go func() {
		a, err := client.Do(r)
		if err == nil {
			var got []byte
			if got, err = io.ReadAll(a.Body); len(got) > 0 || a.StatusCode != status {
				err = fmt.Errorf("got %s with %q", a.Status, got)
			}
			a.Body.Close()
		}
		answered <- err
	}()
	s := testnet.Receive(t, "the Answer", streams)
	defer s.Abort(nil) // or a server would wait for it if this fails
	if way == "later" {
		s.WriteHeader(status)
		s.Flush()
	}
	if err := testnet.Receive(t, "the answer to "+method+" "+url, answered); err != nil {
		t.Errorf("%s %s: %v", method, url, err)
	}
	switch err := testnet.Receive(t, "the end of "+method+" "+url, ends); {
	case err == nil:
	case way == "later", way == "begin", err != http.ErrBodyNotAllowed && err != ErrClientGone: // those if Detach waits
		t.Errorf("%s %s: OnEnd got %v", method, url, err)
	}
}

// TestDetachNoBodyGone: such Streams are counted out, so that Shutdown returns and a connection's
// streams are not used up. A body that the client goes on sending ends nothing early.
func TestDetachNoBodyGone(t *testing.T) {
	ends := make(chan error, 1)
	h := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_ = Detach(w, r, func(s *Answer) { s.OnEnd(func(err error) { ends <- err }) })
	}
	check := func(f *fixture, url string, client *http.Client) {
		body, more := io.Pipe()
		defer more.Close()
		for _, body := range []io.Reader{nil, body} {
			r, err := http.NewRequest("HEAD", url, body)
			if err != nil {
				f.Fatal(err)
			}
			if _, err := client.Do(r); err != nil {
				f.Fatal(err)
			}
			if err := testnet.Receive(f, "the end", ends); err != nil {
				f.Errorf("OnEnd got %v", err)
			}
			if f.srv.Protocols == nil {
				break // the body comes first
			}
		}
		f.awaitDetached(0)
		testnet.Eventually(f, "no open stream", func() bool { return f.server.HTTP2Stats().Streams == 0 })
		f.shutdown()
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		f := startOurs(t, h, nil)
		url, client := clientOf(t, f, nil, nil)
		check(f, url, client)
	})
	t.Run("h2c", func(t *testing.T) {
		f, url, client := startDetachedH2C(t, h)
		check(f, url, client)
	})
}

// TestDetachOnEndWaits: in begin, OnEnd and what ends the Answer don't call the function, which may take
// a lock that begin holds.
func TestDetachOnEndWaits(t *testing.T) {
	for _, arm := range detachedArms {
		t.Run(arm.name, func(t *testing.T) {
			var mu sync.Mutex
			ends := make(chan error, 1)
			url, client := arm.start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = Detach(w, r, func(s *Answer) {
					mu.Lock()
					defer mu.Unlock()
					s.Close()
					s.OnEnd(func(err error) {
						mu.Lock()
						defer mu.Unlock()
						ends <- err
					})
					s.Abort(nil)
				})
			}))
			if r, err := client.Get(url); err == nil {
				r.Body.Close()
			}
			if err := testnet.Receive(t, "the end", ends); err == nil {
				t.Error("OnEnd got nil, want the error of Abort")
			}
		})
	}
}
