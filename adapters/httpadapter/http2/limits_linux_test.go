//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestConnsPerHost: MaxConnsPerHost limits connections and dials. Calls wait in order, for an idle
// connection or a place; a call that is cancelled while it waits, a connection that ends and one that
// switches protocols make room.
func TestConnsPerHost(t *testing.T) {
	for _, keep := range []bool{true, false} {
		base := func() *http.Transport { return &http.Transport{MaxConnsPerHost: 1, DisableKeepAlives: !keep} }
		both(t, base, func(t *testing.T, rt http.RoundTripper) (s string) {
			asked, release := make(chan string, 9), make(chan string)
			h := newHostile(t, func(c net.Conn, request string) bool {
				asked <- strings.Fields(request)[1]
				switch <-release {
				case "close":
					_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
					return false
				case "end":
					return false
				case "switch":
					_, _ = io.WriteString(c, "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
					return false
				}
				return answerHello(c, request)
			})
			var calls [6]chan string
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			for i := range calls {
				calls[i] = make(chan string, 1)
				testnet.GoBlocked(t, "a call", func() {
					req := newGet(t, fmt.Sprint(h.url(), i))
					if i == 2 {
						req = req.WithContext(ctx)
					}
					resp, err := rt.RoundTrip(req)
					if err != nil {
						calls[i] <- describe(err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					calls[i] <- fmt.Sprint(resp.Status, string(body), err)
				})
				if i == 0 {
					s += <-asked
				}
			}
			cancel()
			s += <-calls[2]
			for _, how := range []string{"answer", "close", "end", "switch"} {
				release <- how
				s += <-asked
			}
			release <- "answer"
			for _, call := range []int{0, 1, 3, 4, 5} {
				s += <-calls[call] + "\n"
			}
			return fmt.Sprint(s, h.Accepted())
		})
	}
}

// hooked returns a context with a hook of each kind that a caller's goroutine runs, one of which panics
// or ends the goroutine.
func hooked(t *testing.T, which string, end func()) context.Context {
	hook := func(name string) {
		if name == which {
			end()
		}
	}
	return httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GetConn:              func(string) { hook("GetConn") },
		GotConn:              func(httptrace.GotConnInfo) { hook("GotConn") },
		WroteHeaderField:     func(string, []string) { hook("WroteHeaderField") },
		WroteHeaders:         func() { hook("WroteHeaders") },
		WroteRequest:         func(httptrace.WroteRequestInfo) { hook("WroteRequest") },
		GotFirstResponseByte: func() { hook("GotFirstResponseByte") },
	})
}

// TestHookEndsCall: a hook that panics, or ends the goroutine, leaves nothing behind that later calls
// would wait for.
func TestHookEndsCall(t *testing.T) {
	quiet(t)
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	plain := httptest.NewServer(ok)
	defer plain.Close()
	shared, sharedBase := newHTTP2Server(t, false, ok)
	sharedBase.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
	for _, which := range []string{"GetConn", "GotConn", "WroteHeaderField", "WroteHeaders", "WroteRequest", "GotFirstResponseByte"} {
		for end, f := range map[string]func(){"panics": func() { panic("a hook") }, "ends": runtime.Goexit} {
			for _, srv := range []*httptest.Server{plain, shared} {
				for _, keep := range []bool{true, false} {
					base := new(http.Transport)
					if srv == shared {
						base = sharedBase.Clone()
					}
					base.MaxConnsPerHost, base.DisableKeepAlives = 1, !keep
					tr := New(base)
					ctx := hooked(t, which, f)
					for range 2 {
						done := make(chan struct{})
						go func() {
							defer close(done)
							defer func() { _ = recover() }()
							_, _ = tr.RoundTrip(newGet(t, srv.URL).WithContext(ctx))
							t.Errorf("%s %s: the call has returned", which, end)
						}()
						testnet.Receive(t, "the end of a call", done)
					}
					if got := result(tr, "GET", srv.URL); !strings.HasPrefix(got, "200") {
						t.Errorf("%s %s, keep %t: got %s", which, end, keep, got)
					}
					if srv == shared {
						noStreams(t, tr)
					}
					tr.CloseIdleConnections()
					awaitEmpty(t, tr)
				}
			}
		}
	}
}

// awaitWaiting waits until so many calls wait for a connection, without a dial.
func awaitWaiting(t *testing.T, tr *Transport, n int) {
	t.Helper()
	testnet.Eventually(t, fmt.Sprint(n, " calls wait"), func() bool {
		s := tr.Stats()
		return s.Waiting-s.Dialing == n
	})
}

// TestShareOfDials: a host whose dials hang, or its handshakes, has no more of them than its share, and
// calls to another host don't wait for it. Its own calls go on when dials end.
func TestShareOfDials(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("TLS ", secure), func(t *testing.T) { testShareOfDials(t, secure) })
	}
}

func testShareOfDials(t *testing.T, secure bool) {
	var begun atomic.Int64
	release := make(chan bool)
	end := sync.OnceFunc(func() { close(release) })
	hang := func() {
		begun.Add(1)
		<-release
	}
	var config *tls.Config
	base := new(http.Transport)
	if secure {
		config, base.TLSClientConfig = testnet.TLS(t)
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			hang()
			return nil, nil
		}
	}
	h := newHostile(t, answerHello)
	hanging := newHostileOver(t, config, answerHello)
	base.DialContext = (&net.Dialer{Control: func(_, addr string, _ syscall.RawConn) error {
		if addr == hanging.Addr().String() && !secure {
			hang()
		}
		return nil
	}}).DialContext
	t.Cleanup(end) // before the server closes
	tr := New(base)
	tr.conns.DialsMax = 2
	defer tr.CloseIdleConnections()
	const calls = 6
	results := make(chan string, calls)
	for range calls {
		go func() { results <- result(tr, "GET", hanging.url()) }()
	}
	awaitWaiting(t, tr, calls-2)
	for range 3 {
		if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
			t.Error(got)
		}
	}
	testnet.Eventually(t, "two dials hang", func() bool { return begun.Load() >= 2 })
	if n := begun.Load(); n > 2 {
		t.Errorf("got %d dials under way, want 2 at most", n)
	}
	end()
	for range calls {
		if got := <-results; !strings.HasPrefix(got, "200") {
			t.Error(got)
		}
	}
}
