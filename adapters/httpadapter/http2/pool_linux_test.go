//go:build !percore_net

package http2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"syscall"
	"testing"

	"github.com/percore/percore/adapters/httpadapter/internal/client/request"
	"github.com/percore/percore/internal/testnet"
)

var answerHello = says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true)

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
				return fmt.Sprint(s, h.Accepted())
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

// emptyPool reports whether the pool has nothing.
func emptyPool(tr *Transport) error {
	for h := range tr.conns.Hosts {
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
	if n := h.Accepted(); n != want {
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
// the answer: in clear, over TLS, and over a connection of the user's own type, which a hook gets.
func TestSwitch(t *testing.T) {
	for _, mode := range []string{"clear", "TLS", "wrapped"} {
		t.Run(mode, func(t *testing.T) {
			server, _, _ := secured(t, mode == "TLS")
			base := func() *http.Transport {
				base := new(http.Transport)
				switch _, client := testnet.TLS(t); mode {
				case "TLS":
					base.TLSClientConfig = client
				case "wrapped":
					base.DialContext = dialWrapped
				}
				return base
			}
			both(t, base, func(t *testing.T, rt http.RoundTripper) string {
				h := newHostileOver(t, server, func(c net.Conn, _ string) bool {
					_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nfirst")
					_, _ = io.Copy(c, c)
					return false
				})
				var shown net.Conn
				ctx, cancel := context.WithCancel(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GotConn: func(i httptrace.GotConnInfo) { shown = i.Conn },
				}))
				defer cancel()
				req := newGet(t, h.url()).WithContext(ctx)
				req.Header.Set("Connection", "Upgrade")
				req.Header.Set("Upgrade", "echo")
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return err.Error()
				}
				cancel() // which has no effect any more
				rw := resp.Body.(io.ReadWriteCloser)
				_, _ = io.WriteString(rw, "second")
				got := make([]byte, len("firstsecond"))
				_, err = io.ReadFull(rw, got)
				s := fmt.Sprint(resp.Status, resp.Header, string(got), err, resp.TLS != nil)
				if mode == "wrapped" {
					return fmt.Sprintf("%s %T %v", s, shown, rw.Close())
				}
				_ = rw.(interface{ CloseWrite() error }).CloseWrite()
				_, err = io.ReadFull(rw, got)
				s += fmt.Sprint(err, rw.Close())
				_, err = io.WriteString(rw, "x")
				return s + fmt.Sprint(errors.Is(err, net.ErrClosed))
			})
		})
	}
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
	_, err := tr.RoundTrip(newGet(t, h.url()).WithContext(&ownContext{ctx, func(func()) func() bool {
		return func() bool { return ctx.Err() == nil } // watchers see the end later
	}}))
	if err != cause {
		t.Errorf("got %v, want the cause", err)
	}
	awaitEmpty(t, tr)
}
