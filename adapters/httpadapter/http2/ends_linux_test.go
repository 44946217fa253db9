//go:build !percore_net

package http2

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// both runs f with this transport and with http.Transport, which have the same settings, and compares
// the texts that f returns.
func both(t *testing.T, base func() *http.Transport, f func(t *testing.T, rt http.RoundTripper) string) {
	t.Helper()
	quiet(t)
	got, want, ok := equal(func() (got, want string) {
		var texts [2]string
		for i, rt := range []http.RoundTripper{New(base()), base()} {
			texts[i] = testnet.WithoutPorts(f(t, rt))
			rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
		}
		return texts[0], texts[1]
	})
	if !ok {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func plainBase() *http.Transport { return &http.Transport{} }

// describe returns everything about an error that a program may look at.
func describe(err error) string {
	if err == nil {
		return "none"
	}
	var timeout interface{ Timeout() bool }
	isTimeout := errors.As(err, &timeout) && timeout.Timeout()
	return fmt.Sprintf("%v; timeout %t, canceled %t, deadline %t, EOF %t, unexpected EOF %t, reset %t", err, isTimeout,
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET))
}

// endings end the context of a request, or close its Cancel.
var endings = map[string]func(req *http.Request) (with *http.Request, end func()){
	"cancel": func(req *http.Request) (*http.Request, func()) {
		ctx, cancel := context.WithCancel(req.Context())
		return req.WithContext(ctx), cancel
	},
	"cause": func(req *http.Request) (*http.Request, func()) {
		ctx, cancel := context.WithCancelCause(req.Context())
		return req.WithContext(ctx), func() { cancel(errors.New("a cause")) }
	},
	"Cancel": func(req *http.Request) (*http.Request, func()) {
		done := make(chan struct{})
		//lint:ignore SA1019 programs still use it
		req.Cancel = done
		return req, sync.OnceFunc(func() { close(done) })
	},
}

// TestCancel ends requests before they begin, and while they wait for a connection. TestStall has those
// that wait for the answer, or read its body.
func TestCancel(t *testing.T) {
	for name, ending := range endings {
		t.Run(name+" before", func(t *testing.T) {
			if name == "Cancel" {
				t.Skip("net/http watches Cancel with a goroutine, which sees it in time by chance: the other cases have it")
			}
			both(t, plainBase, func(t *testing.T, rt http.RoundTripper) string {
				h := newHostile(t, func(net.Conn, string) bool { return false })
				req, end := ending(newGet(t, h.url()))
				end()
				_, err := rt.RoundTrip(req)
				return describe(err)
			})
		})
		t.Run(name+" while dialing", func(t *testing.T) {
			release, dialing := make(chan struct{}), make(chan struct{}, 9)
			defer close(release)
			dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error {
				dialing <- struct{}{}
				<-release
				return errors.New("released")
			}}
			base := func() *http.Transport { return &http.Transport{DialContext: dialer.DialContext} }
			both(t, base, func(t *testing.T, rt http.RoundTripper) string {
				req, end := ending(newGet(t, "http://127.0.0.1:1/"))
				go func() {
					<-dialing
					end()
				}()
				_, err := rt.RoundTrip(req)
				return describe(err)
			})
		})
	}
}

func newGet(t testing.TB, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// TestHeaderTimeout: ResponseHeaderTimeout ends no request whose header has come. TestStall has the
// others.
func TestHeaderTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		defer server.Close()
		go func() {
			_, _ = readRequest(bufio.NewReader(server))
			_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
			time.Sleep(time.Hour)
			_, _ = io.WriteString(server, "hello")
		}()
		tr := New(&http.Transport{ResponseHeaderTimeout: time.Minute, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return client, nil
		}})
		defer tr.CloseIdleConnections()
		if got := result(tr, "GET", "http://host/"); !strings.HasSuffix(got, `body "hellohello"`) {
			t.Errorf("got %s, want the body of a slow server", got)
		}
	})
}

// TestHeaderBytes: MaxResponseHeaderBytes limits the header, and all headers before it.
func TestHeaderBytes(t *testing.T) {
	base := func() *http.Transport { return &http.Transport{MaxResponseHeaderBytes: 5000} }
	long := "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: " + strings.Repeat("y", 6000) + "\r\n\r\nhello"
	flood := strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 200) + "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	for _, answer := range []string{long, long[:5500], flood, "HTTP/1.1 200 " + strings.Repeat("y", 6000)} {
		both(t, base, func(t *testing.T, rt http.RoundTripper) string {
			h := newHostile(t, says(answer, false))
			return result(rt, "GET", h.url()) + result(rt, "HEAD", h.url())
		})
	}
}

// TestEarlyAnswer: an answer is returned that comes before the request is sent, of which the server
// reads nothing: a long header, or a body without an end. The connection isn't used again.
func TestEarlyAnswer(t *testing.T) {
	quiet(t)
	tr := newTestTransport(t)
	url := answersEarly(t)
	for _, body := range []io.Reader{
		nil, strings.NewReader("short"), onlyReader{strings.NewReader("of unknown length")}, endless{},
	} {
		req, _ := http.NewRequest("POST", url, body)
		if body != (endless{}) {
			req.Header.Set("Cookie", strings.Repeat("x", 16<<20))
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(resp.Body); string(got) != "hello" || err != nil || resp.StatusCode != 413 {
			t.Errorf("got %d, %q, %v", resp.StatusCode, got, err)
		}
	}
	awaitEmpty(t, tr)
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestSharedEarlyAnswer is the same over HTTP/2. The server reads the beginning of the header.
func TestSharedEarlyAnswer(t *testing.T) {
	srv := testnet.Serve(t, listen(t), func(c net.Conn) {
		p, _ := frames.NewServerPeer(t, c)
		_, _ = c.Write(p.Out)
		_, _ = io.ReadFull(c, make([]byte, 32<<10))
		p.Out = nil
		_, _ = c.Write(p.Headers(1, true, ":status", "431").Out)
		_, _ = io.Copy(io.Discard, c)
	})
	tr := New(&http.Transport{Protocols: clearHTTP2()})
	req := newGet(t, testnet.URL(srv, false, ""))
	req.Header.Set("Cookie", strings.Repeat("x", 16<<20))
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.StatusCode != 431 {
		t.Errorf("got %v, %v, want 431", resp, err)
	}
	tr.CloseIdleConnections()
}

// exiting is a body whose reader ends its goroutine.
type exiting struct{ done chan struct{} }

func (e exiting) Read([]byte) (int, error) {
	defer close(e.done)
	runtime.Goexit()
	return 0, nil
}

// TestBodyEndsGoroutine: a connection isn't used again on which a part of a body is missing because the
// reader has ended its goroutine, as the FailNow of a test does.
func TestBodyEndsGoroutine(t *testing.T) {
	tr := newTestTransport(t)
	body := exiting{make(chan struct{})}
	req, _ := http.NewRequest("POST", answersEarly(t), body)
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	<-body.done
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	awaitEmpty(t, tr)
}

// answersEarly returns the URL of a server that answers connections without reading from them.
func answersEarly(t *testing.T) (url string) {
	done := make(chan struct{})
	srv := testnet.Serve(t, listen(t), func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nhello")
		<-done
	})
	t.Cleanup(func() { close(done) })
	return testnet.URL(srv, false, "")
}

// ownContext is a context of the kind that servers make.
type ownContext struct {
	context.Context
	afterFunc func(f func()) (stop func() bool)
}

func (c *ownContext) Value(key any) any {
	if key == semantics.AfterFuncer {
		return c
	}
	return c.Context.Value(key)
}

func (c *ownContext) AfterFunc(f func()) (stop func() bool) { return c.afterFunc(f) }

// TestOwnContext: a context with a method AfterFunc is watched with it, also through values, but not
// through another that ends earlier.
func TestOwnContext(t *testing.T) {
	h := newHostile(t, says("HTTP/1.1 204 No Content\r\n\r\n", true))
	tr := newTestTransport(t)
	parent, end := context.WithCancel(context.Background())
	defer end()
	watched, stopped := 0, 0
	own := &ownContext{parent, func(f func()) (stop func() bool) {
		watched++
		after := context.AfterFunc(parent, f)
		return func() bool {
			stopped++
			return after()
		}
	}}
	earlier, cancel := context.WithCancel(own)
	defer cancel()
	type key struct{}
	for _, ctx := range []context.Context{own, context.WithValue(own, key{}, 1), context.WithValue(earlier, key{}, 1)} {
		resp, err := tr.RoundTrip(newGet(t, h.url()).WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if watched != 2 || stopped != 2 {
		t.Errorf("got %d watches and %d ends of them, want 2 and 2", watched, stopped)
	}
}
