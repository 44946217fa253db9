//go:build !percore_net

package http2

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// newWatched starts a server of HTTP/2 with so many streams for a connection. /watch answers without an
// end, and /leave as well, after a GOAWAY. /held waits until something is sent to release.
func newWatched(t *testing.T, streams int) (url string, base *http.Transport, release chan bool) {
	release = make(chan bool)
	srv, base := newHTTP2ServerWith(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/leave":
			w.Header().Set("Connection", "close") // net/http's server sends GOAWAY
			fallthrough
		case "/watch":
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case "/held":
			<-release
		}
	}), &http.HTTP2Config{MaxConcurrentStreams: streams})
	return srv.URL, base, release
}

// begin makes a request whose answer doesn't end before the test does.
func begin(t *testing.T, rt http.RoundTripper, url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	if _, err := rt.RoundTrip(newGet(t, url).WithContext(ctx)); err != nil {
		t.Fatal(err)
	}
}

// inBackground makes a request whose result comes later.
func inBackground(rt http.RoundTripper, url string) chan string {
	got := make(chan string, 1)
	go func() { got <- result(rt, "GET", url) }()
	return got
}

func wantOK(t *testing.T, what string, got <-chan string) {
	t.Helper()
	if s := testnet.Receive(t, what, got); !strings.HasPrefix(s, "200") {
		t.Errorf("%s: got %s", what, s)
	}
}

// TestStreamOfAnyConn: a call for which no connection has room gets the first stream that ends, of
// whichever connection.
func TestStreamOfAnyConn(t *testing.T) {
	url, base, release := newWatched(t, 1)
	base.MaxConnsPerHost = 2
	tr := New(base)
	defer tr.CloseIdleConnections()
	wantOK(t, "the first call", inBackground(tr, url)) // the limit is known then
	begin(t, tr, url+"/watch")
	held := inBackground(tr, url+"/held")
	testnet.Eventually(t, "two connections", func() bool { s := tr.Stats(); return s.Conns == 2 && s.Waiting == 0 && s.Idle == 0 })
	waits := inBackground(tr, url)
	testnet.Eventually(t, "a call waits", func() bool { return tr.Stats().Waiting == 1 })
	release <- true
	wantOK(t, "the held call", held)
	wantOK(t, "the call that has waited", waits)
}

// TestPlaceOfLeaving: a connection that the server goes away from has no place of MaxConnsPerHost, even
// while an answer goes on.
func TestPlaceOfLeaving(t *testing.T) {
	url, base, _ := newWatched(t, 100)
	base.MaxConnsPerHost = 1
	tr := New(base)
	defer tr.CloseIdleConnections()
	begin(t, tr, url+"/leave")
	wantOK(t, "a call", inBackground(tr, url))
	if s := tr.Stats(); s.Conns != 2 {
		t.Errorf("got %+v, want 2 connections", s)
	}
}

// hangingDials is a DialContext whose dials hang, until their context ends, while hang is set.
type hangingDials struct {
	hang  atomic.Bool
	begun chan context.Context
}

func (d *hangingDials) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if d.hang.Load() {
		d.begun <- ctx
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// TestHungDial: a dial that hangs holds up no other call, though one dial is enough for a server of
// HTTP/2, and ends as soon as there is another connection and no call waits for it.
func TestHungDial(t *testing.T) {
	url, base, _ := newWatched(t, 100)
	dials := &hangingDials{begun: make(chan context.Context, 1)}
	base.DialContext = dials.dial
	tr := New(base)
	defer tr.CloseIdleConnections()
	begin(t, tr, url+"/leave")
	dials.hang.Store(true)
	hangs := inBackground(tr, url)
	dial := testnet.Receive(t, "a dial that hangs", dials.begun)
	dials.hang.Store(false)
	wantOK(t, "a call beside it", inBackground(tr, url))
	wantOK(t, "its own call", hangs)
	testnet.Receive(t, "its end", dial.Done())
}

// TestDialEndsGoroutine: a function of the user's that ends the goroutine of a dial makes the call fail,
// and keeps no place.
func TestDialEndsGoroutine(t *testing.T) {
	for _, test := range []struct {
		overTLS bool
		trace   httptrace.ClientTrace
	}{
		{false, httptrace.ClientTrace{ConnectStart: func(string, string) { runtime.Goexit() }}},
		{true, httptrace.ClientTrace{TLSHandshakeStart: runtime.Goexit}},
	} {
		srv, base := newHTTP2Server(t, test.overTLS, http.NotFoundHandler())
		base.MaxConnsPerHost = 1
		tr := New(base)
		for range 2 {
			_, err := tr.RoundTrip(newGet(t, srv.URL).WithContext(httptrace.WithClientTrace(t.Context(), &test.trace)))
			if fmt.Sprint(err) != "net/http: a function that dialing has called has ended the goroutine" {
				t.Errorf("got %v, want that the goroutine has ended", err)
			}
		}
		awaitEmpty(t, tr)
	}
}

// TestCheckoutReserves: a connection of HTTP/2 that a call has got is not idle, whatever the call does
// before it opens its stream.
func TestCheckoutReserves(t *testing.T) {
	onBoth(t, func(t *testing.T, overTLS bool) {
		srv, base := newHTTP2Server(t, overTLS, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		base.IdleConnTimeout = time.Nanosecond
		tr := New(base)
		var conns atomic.Int32
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			conns.Add(1)
			tr.CloseIdleConnections()
		}})
		const calls = 20
		for range calls {
			resp, err := tr.RoundTrip(newGet(t, srv.URL).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if n := conns.Load(); n != calls {
			t.Errorf("%d calls got %d connections", calls, n)
		}
		awaitEmpty(t, tr)
	})
}

// TestPoolAttack: whatever becomes of dials, connections and calls, those that go well do, none hangs,
// and nothing is left.
func TestPoolAttack(t *testing.T) {
	quiet(t)
	for _, limit := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) { attackPool(t, limit) })
	}
}

func attackPool(t *testing.T, limit int) {
	var turn atomic.Int64
	srv, base := newHTTP2Server(t, true, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if turn.Add(1)%4 == 0 {
			w.Header().Set("Connection", "close")
		}
		_, _ = io.Copy(w, r.Body)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	http1 := srv.TLS.Clone()
	http1.NextProtos = []string{"http/1.1"}
	srv.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		if turn.Add(1)%5 == 0 {
			return http1, nil // the server speaks HTTP/2 now and then
		}
		return nil, nil
	}
	dialer := net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		switch turn.Add(1) % 11 {
		case 3:
			return syscall.ENETUNREACH
		case 7:
			ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond) // else it may keep the only place
			defer cancel()
			<-ctx.Done()
			return syscall.ENETUNREACH
		}
		return nil
	}}
	base.DialContext, base.MaxConnsPerHost, base.IdleConnTimeout = dialer.DialContext, limit, time.Millisecond
	tr := New(base)
	over := make(chan struct{})
	closer := sync.WaitGroup{}
	closer.Go(func() {
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			tr.CloseIdleConnections()
			for h := range tr.conns.Hosts {
				if open, _ := h.State(); limit > 0 && open > limit {
					t.Errorf("got %d connections, want %d at most", open, limit)
				}
			}
		}
	})
	var calls sync.WaitGroup
	for g := range 16 {
		calls.Go(func() {
			for i := range 20 {
				attackCall(t, tr, srv.URL, (g+i)%4 == 0)
			}
		})
	}
	calls.Wait()
	close(over)
	closer.Wait()
	testnet.Eventually(t, "nothing is left", func() bool {
		tr.CloseIdleConnections() // a dial for which no call has waited may have ended
		s := tr.Stats()
		return emptyPool(tr) == nil && s.Conns+s.Dialing+s.Waiting+s.Idle == 0
	})
}

// attackCall makes a call, which goes well unless it is cancelled or a dial has failed.
func attackCall(t *testing.T, tr *Transport, url string, cancels bool) {
	ctx := t.Context()
	if cancels {
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, rand.N(3*time.Millisecond))
		defer cancel()
	}
	req, _ := http.NewRequestWithContext(ctx, "PUT", url, strings.NewReader("hello"))
	req.Header.Set("Idempotency-Key", "x")
	//lint:ignore SA1019 programs still use it
	req.Cancel = make(chan struct{}) // it is watched until the call has an answer, also when it is made again
	resp, err := tr.RoundTrip(req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(resp.Body)
		resp.Body.Close()
	}
	switch {
	case err == nil && string(body) == "hello":
	case ctx.Err() != nil, errors.Is(err, syscall.ENETUNREACH):
	default:
		t.Errorf("got %q, %v", body, err)
	}
}
