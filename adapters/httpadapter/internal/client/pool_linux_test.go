//go:build !percore_net

package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/adapters/httpadapter/internal/semantics"
	"github.com/percore/percore/internal/testnet"
)

func answerHello(c net.Conn, _ string) bool {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	return err == nil
}

// pooled makes a request, and returns its answer, unread, and a function that returns what was said
// about its connection.
func pooled(t *testing.T, rt http.RoundTripper, url string) (*http.Response, func() string) {
	t.Helper()
	said := make(chan string, 10)
	trace := &httptrace.ClientTrace{
		GotConn:     func(i httptrace.GotConnInfo) { said <- fmt.Sprintf("reused %t, was idle %t", i.Reused, i.WasIdle) },
		PutIdleConn: func(err error) { said <- fmt.Sprintf("put back: %v", err) },
	}
	req := newGet(t, url)
	resp, err := rt.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	if err != nil {
		t.Fatal(err)
	}
	return resp, func() string {
		s := ""
		for len(said) > 0 {
			s += <-said + "\n"
		}
		return s
	}
}

// TestIdlePerHost: MaxIdleConnsPerHost limits the idle connections to a host, with 2 as the default.
func TestIdlePerHost(t *testing.T) {
	for _, limit := range []int{-1, 0, 1, 3} {
		both(t, func() *http.Transport { return &http.Transport{MaxIdleConnsPerHost: limit} },
			func(t *testing.T, rt http.RoundTripper) (s string) {
				h := newHostile(t, answerHello)
				for range 2 {
					var responses []*http.Response
					var said []func() string
					for range 4 {
						r, f := pooled(t, rt, h.url())
						responses, said = append(responses, r), append(said, f)
					}
					for i, r := range responses {
						_, _ = io.ReadAll(r.Body)
						s += said[i]()
					}
				}
				return fmt.Sprint(s, h.connCount())
			})
	}
}

// TestIdleOfAllHosts: MaxIdleConns limits the idle connections to all hosts; the one that was idle for
// longest is closed.
func TestIdleOfAllHosts(t *testing.T) {
	both(t, func() *http.Transport { return &http.Transport{MaxIdleConns: 2} },
		func(t *testing.T, rt http.RoundTripper) (s string) {
			hosts := []*hostile{newHostile(t, answerHello), newHostile(t, answerHello), newHostile(t, answerHello)}
			for _, i := range []int{0, 1, 2, 2, 1, 0, 1, 2, 0, 0} {
				r, said := pooled(t, rt, hosts[i].url())
				_, _ = io.ReadAll(r.Body)
				s += said()
			}
			return s
		})
}

// awaitEnd returns a server that says when a connection has ended.
func awaitEnd(t *testing.T) (h *hostile, ended chan bool) {
	ended = make(chan bool, 10)
	return newHostile(t, func(c net.Conn, request string) bool {
		answerHello(c, request)
		_, err := bufio.NewReader(c).ReadByte()
		ended <- err == io.EOF
		return false
	}), ended
}

// TestIdleTimeout: IdleConnTimeout closes a connection that waits.
func TestIdleTimeout(t *testing.T) {
	tr := New(&http.Transport{IdleConnTimeout: 10 * time.Millisecond})
	defer tr.CloseIdleConnections()
	h, ended := awaitEnd(t)
	if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	if !<-ended {
		t.Error("the connection was not closed")
	}
	awaitEmpty(t, tr)
}

// emptyPool reports whether the pool has nothing.
func emptyPool(tr *Transport) error {
	for h := range tr.conns.States() {
		return fmt.Errorf("the pool has %s", h.Addr)
	}
	if n := tr.Stats().Idle; n != 0 {
		return fmt.Errorf("the pool counts %d idle connections", n)
	}
	return nil
}

func awaitEmpty(t *testing.T, tr *Transport) {
	t.Helper()
	testnet.Eventually(t, "the pool forgets the connections", func() bool { return emptyPool(tr) == nil })
}

func awaitIdle(t *testing.T, tr *Transport) {
	t.Helper()
	testnet.Eventually(t, "a connection becomes idle", func() bool { return tr.Stats().Idle > 0 })
}

// TestCloseIdle: CloseIdleConnections closes the connections that wait, and later ones are kept.
func TestCloseIdle(t *testing.T) {
	tr := New(&http.Transport{})
	h, ended := awaitEnd(t)
	for range 3 {
		if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
			t.Fatal(got)
		}
		if err := emptyPool(tr); err == nil {
			t.Error("the connection is not idle")
		}
		tr.CloseIdleConnections()
		if !<-ended {
			t.Error("the connection was not closed")
		}
		awaitEmpty(t, tr)
	}
}

// TestServerEndsIdle: the pool forgets a connection that the server ends, or sends something on.
func TestServerEndsIdle(t *testing.T) {
	quiet(t)
	for _, last := range []string{"", "x"} {
		end := make(chan bool)
		h := newHostile(t, func(c net.Conn, request string) bool {
			answerHello(c, request)
			<-end
			_, _ = io.WriteString(c, last)
			return last != ""
		})
		tr := newTestTransport(t)
		_ = result(tr, "GET", h.url())
		if err := emptyPool(tr); err == nil {
			t.Error("the connection is not idle")
		}
		close(end)
		awaitEmpty(t, tr)
	}
}

// TestFirstComesFirst: a request that waits for a dial gets a connection that becomes idle earlier.
func TestFirstComesFirst(t *testing.T) {
	h := newHostile(t, answerHello)
	dialing, release := make(chan bool, 2), make(chan bool, 2)
	release <- true // the first dial
	dialer := net.Dialer{Control: func(string, string, syscall.RawConn) error {
		dialing <- true
		<-release
		return nil
	}}
	tr := New(&http.Transport{DialContext: dialer.DialContext})
	first, _ := pooled(t, tr, h.url())
	<-dialing
	done := make(chan string)
	go func() {
		resp, said := pooled(t, tr, h.url())
		resp.Body.Close()
		done <- said()
	}()
	<-dialing // the second has begun
	_, _ = io.ReadAll(first.Body)
	if got, want := <-done, "reused true, was idle false\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	release <- true
	awaitIdle(t, tr) // the dialed connection, and on Go 1.27 perhaps the other
	tr.CloseIdleConnections()
	awaitEmpty(t, tr)
}

// TestLeftDial: the connection that is dialed for a request that was cancelled waits for the next one.
// CloseIdleConnections ends dials that no request waits for.
func TestLeftDial(t *testing.T) {
	h := newHostile(t, answerHello)
	dialing, release := make(chan context.Context), make(chan bool)
	dialer := net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		dialing <- ctx
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	tr := New(&http.Transport{DialContext: dialer.DialContext})
	leave := func() {
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error)
		go func() {
			_, err := tr.RoundTrip(newGet(t, h.url()).WithContext(ctx))
			failed <- err
		}()
		<-dialing
		cancel()
		if err := <-failed; err != context.Canceled {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	}
	leave()
	release <- true
	awaitIdle(t, tr)
	if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") || h.connCount() != 1 {
		t.Errorf("got %s over one of %d connections", got, h.connCount())
	}
	tr.CloseIdleConnections()
	leave()
	tr.CloseIdleConnections()
	awaitEmpty(t, tr)
}

// TestEarlyClose: a body that is closed before its end ends the connection, or is read on as the
// running version of net/http does.
func TestEarlyClose(t *testing.T) {
	h := newHostile(t, answerHello)
	tr := newTestTransport(t)
	put := make(chan error, 1)
	trace := &httptrace.ClientTrace{PutIdleConn: func(err error) { put <- err }}
	resp, err := tr.RoundTrip(newGet(t, h.url()).WithContext(httptrace.WithClientTrace(context.Background(), trace)))
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || fmt.Sprint(err) != "http: read on closed response body" {
		t.Errorf("got %d, %v", n, err)
	}
	want := 2
	if request.Drains {
		if err := <-put; err != nil {
			t.Errorf("the connection was not kept: %v", err)
		}
		want = 1
	}
	_ = result(tr, "GET", h.url())
	if n := h.connCount(); n != want {
		t.Errorf("got %d connections, want %d", n, want)
	}
}

// TestCancelAfterClose: the end of the context after Close doesn't keep the connection from being used
// again, if the running version of net/http reads the rest of a body.
func TestCancelAfterClose(t *testing.T) {
	if !request.Drains {
		t.Skip("net/http doesn't read the rest of a body before Go 1.27: run it with GOTOOLCHAIN=go1.27.4")
	}
	release := make(chan bool)
	h := newHostile(t, func(c net.Conn, _ string) bool {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel")
		<-release
		_, _ = io.WriteString(c, "lo")
		return true
	})
	tr := newTestTransport(t)
	put := make(chan error, 1)
	trace := &httptrace.ClientTrace{PutIdleConn: func(err error) { put <- err }}
	ctx, cancel := context.WithCancel(httptrace.WithClientTrace(context.Background(), trace))
	resp, err := tr.RoundTrip(newGet(t, h.url()).WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	cancel()
	close(release)
	if err := testnet.Receive(t, "the connection", put); err != nil {
		t.Errorf("the connection was not kept: %v", err)
	}
}

// TestSwitch: an answer that switches protocols has a body that writes, and begins with what came with
// the answer.
func TestSwitch(t *testing.T) {
	both(t, plainBase, func(t *testing.T, rt http.RoundTripper) string {
		h := newHostile(t, func(c net.Conn, _ string) bool {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst")
			_, _ = io.Copy(c, c)
			return false
		})
		req := newGet(t, h.url())
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		resp, err := rt.RoundTrip(req.WithContext(ctx))
		if err != nil {
			return err.Error()
		}
		cancel() // which has no effect any more
		rw := resp.Body.(io.ReadWriteCloser)
		_, _ = io.WriteString(rw, "second")
		_ = rw.(interface{ CloseWrite() error }).CloseWrite()
		got, err := io.ReadAll(rw)
		s := fmt.Sprint(resp.Status, resp.Header, string(got), err, rw.Close())
		_, err = io.WriteString(rw, "x")
		return s + fmt.Sprint(errors.Is(err, net.ErrClosed))
	})
}

// lateContext ends at a moment that the test chooses, but its watchers see that later.
type lateContext struct{ context.Context }

func (c *lateContext) Value(key any) any {
	if key == semantics.AfterFuncer {
		return c
	}
	return c.Context.Value(key)
}

func (c *lateContext) AfterFunc(func()) (stop func() bool) {
	return func() bool { return c.Err() == nil }
}

// TestEndedSwitch: a call whose context ends when protocols are switched returns why that has ended.
func TestEndedSwitch(t *testing.T) {
	cause := errors.New("a cause")
	ctx, cancel := context.WithCancelCause(t.Context())
	h := newHostile(t, func(c net.Conn, _ string) bool {
		cancel(cause)
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
		return true
	})
	tr := newTestTransport(t)
	_, err := tr.RoundTrip(newGet(t, h.url()).WithContext(&lateContext{ctx}))
	if err != cause {
		t.Errorf("got %v, want the cause", err)
	}
	awaitEmpty(t, tr)
}

// TestNoHostStays: hosts that requests can't reach are forgotten.
func TestNoHostStays(t *testing.T) {
	tr := newTestTransport(t)
	for i := range 5 {
		_, err := tr.RoundTrip(newGet(t, fmt.Sprintf("http://127.0.0.%d:1/", i+1)))
		if err == nil {
			t.Error("got no error")
		}
	}
	awaitEmpty(t, tr)
}
