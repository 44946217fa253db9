//go:build !percore_net

package client

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// newHTTP2Server starts a server of net/http's that speaks HTTP/2, over TLS or in clear, and returns a
// base whose requests go there over HTTP/2.
func newHTTP2Server(t testing.TB, overTLS bool, h http.Handler) (srv *httptest.Server, base *http.Transport) {
	t.Helper()
	return newHTTP2ServerWith(t, overTLS, h, nil)
}

func newHTTP2ServerWith(t testing.TB, overTLS bool, h http.Handler, config *http.HTTP2Config) (srv *httptest.Server, base *http.Transport) {
	t.Helper()
	srv = httptest.NewUnstartedServer(h)
	t.Cleanup(srv.Close)
	srv.Config.HTTP2 = config
	base = new(http.Transport)
	if overTLS {
		// Without this, httptest's RSA key would take most of the time, above all on 386.
		srv.TLS, base.TLSClientConfig = testnet.TLS(t)
		srv.EnableHTTP2, base.ForceAttemptHTTP2 = true, true
		srv.StartTLS()
		return srv, base
	}
	srv.Config.Protocols, base.Protocols = clearHTTP2(), clearHTTP2()
	srv.Start()
	return srv, base
}

func clearHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// onBoth runs a test over TLS and in clear.
func onBoth(t *testing.T, f func(t *testing.T, overTLS bool)) {
	for _, overTLS := range []bool{true, false} {
		t.Run(map[bool]string{true: "TLS", false: "clear"}[overTLS], func(t *testing.T) { f(t, overTLS) })
	}
}

// TestShared: calls of many goroutines share a connection, and get their own answers.
func TestShared(t *testing.T) {
	onBoth(t, func(t *testing.T, overTLS bool) {
		srv, base := newHTTP2Server(t, overTLS, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			w.Header().Set("Trailer", "T")
			fmt.Fprintf(w, "%s %s %s %q %s", r.Proto, r.Method, r.URL, body, r.Trailer.Get("U"))
			w.Header().Set("T", "end")
		}))
		tr := New(base)
		defer tr.CloseIdleConnections()
		c := &http.Client{Transport: tr}
		var wg sync.WaitGroup
		for g := range 32 {
			wg.Go(func() {
				for i := range 30 {
					text := strings.Repeat(fmt.Sprint(g, i), i*i)
					req, _ := http.NewRequest("POST", fmt.Sprint(srv.URL, "/", g, "?", i), strings.NewReader(text))
					if i%2 == 1 {
						req.Body, req.ContentLength = io.NopCloser(io.MultiReader(req.Body)), -1
						req.Trailer = http.Header{"U": {"u"}}
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Error(err)
						return
					}
					got, err := io.ReadAll(resp.Body)
					if err != nil {
						t.Error(err)
					}
					want := fmt.Sprintf("HTTP/2.0 POST /%d?%d %q %s", g, i, text, req.Trailer.Get("U"))
					if string(got) != want {
						t.Errorf("got %.100q, want %.100q", got, want)
					}
					if resp.Trailer.Get("T") != "end" {
						t.Errorf("got the trailers %v", resp.Trailer)
					}
					resp.Body.Close()
				}
			})
		}
		wg.Wait()
		noStreams(t, tr)
		if s := tr.Stats(); s.Conns != 1 || s.Requests != 32*30 || len(s.Declined) > 0 {
			t.Errorf("got %+v, want one connection", s)
		}
	})
}

// noStreams waits until all streams have ended.
func noStreams(t *testing.T, tr *Transport) {
	t.Helper()
	testnet.Eventually(t, "the end of all streams", func() bool { return tr.client.Stats().Streams == 0 })
}

// TestSharedUploads: a stream ends with its answer and its upload, whichever comes first.
func TestSharedUploads(t *testing.T) {
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/error" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = io.WriteString(w, "early")
		if r.URL.Path == "/read" {
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	tr := New(base)
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				body := io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("x", 3000*(i%4)))))
				req, _ := http.NewRequest("POST", srv.URL+[]string{"/", "/read", "/error"}[(g+i)%3], body)
				resp, err := tr.RoundTrip(req)
				if err != nil {
					t.Error(err)
					continue
				}
				if got, err := io.ReadAll(resp.Body); string(got) != "early" || err != nil {
					t.Errorf("%s: got %q, %v", req.URL.Path, got, err)
				}
				if i%2 == 0 {
					resp.Body.Close()
				}
			}
		})
	}
	wg.Wait()
	noStreams(t, tr)
}

// untilClosed is a body that goes on until it is closed, and then says that this was all.
type untilClosed struct{ closed chan struct{} }

func (b untilClosed) Read([]byte) (int, error) {
	<-b.closed
	return 0, io.EOF
}

func (b untilClosed) Close() error {
	close(b.closed)
	return nil
}

// TestSharedUploadIsCut: a server that doesn't want the body never takes the part that has come for all
// of it.
func TestSharedUploadIsCut(t *testing.T) {
	read := make(chan error, 1)
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = http.NewResponseController(w).Flush()
		_, err := io.Copy(io.Discard, r.Body)
		read <- err
	}))
	both(t, base.Clone, func(t *testing.T, rt http.RoundTripper) string {
		body := untilClosed{make(chan struct{})}
		sent := make(chan bool)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) },
		})
		req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL, body)
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return err.Error()
		}
		<-body.closed
		if _, ours := rt.(*Transport); ours {
			<-sent // the upload has ended
		}
		resp.Body.Close()
		return describe(<-read)
	})
}

// TestEndedDial: when the first connection of HTTP/2 has ended the other dials, the server is still
// known to speak that, so later calls don't dial each.
func TestEndedDial(t *testing.T) {
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	const calls = 3
	var dials atomic.Int32
	all := make(chan struct{})
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		n := dials.Add(1)
		if n == calls {
			close(all)
		}
		<-all
		if n == 1 {
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	tr := New(base)
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for range calls {
		wg.Go(func() {
			if got := result(tr, "GET", srv.URL); !strings.HasPrefix(got, "200") {
				t.Error(got)
			}
		})
	}
	wg.Wait()
	testnet.Eventually(t, "the end of all dials", func() bool { return tr.Stats().Dialing == 0 })
	for _, s := range tr.conns.States() {
		if s.Took == 0 {
			t.Error("the server is not known to speak HTTP/2")
		}
	}
}

// TestNoConn: a dialer that returns neither a connection nor an error makes the call fail.
func TestNoConn(t *testing.T) {
	both(t, func() *http.Transport {
		return &http.Transport{
			Protocols:   clearHTTP2(),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, nil },
		}
	}, func(t *testing.T, rt http.RoundTripper) string { return result(rt, "GET", "http://example.com/") })
}

// TestSharedRoom: calls for which the server has no room on a connection use others, or wait if there
// may be none.
func TestSharedRoom(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*http.Transport)
		conns  int // at most
	}{
		"others": {func(*http.Transport) {}, 100},
		"strict": {func(base *http.Transport) { base.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true} }, 1},
		"two":    {func(base *http.Transport) { base.MaxConnsPerHost = 2 }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			const room, calls = 3, 40
			var now, most atomic.Int64
			srv, base := newHTTP2ServerWith(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := now.Add(1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
				for range 20 {
					runtime.Gosched()
				}
				now.Add(-1)
			}), &http.HTTP2Config{MaxConcurrentStreams: room})
			test.change(base)
			tr := New(base)
			defer tr.CloseIdleConnections()
			if got := result(tr, "GET", srv.URL); !strings.HasPrefix(got, "200") { // the limit is known then
				t.Fatal(got)
			}
			var wg sync.WaitGroup
			for range calls {
				wg.Go(func() {
					for range 10 {
						if got := result(tr, "GET", srv.URL); !strings.HasPrefix(got, "200") {
							t.Error(got)
						}
					}
				})
			}
			wg.Wait()
			if got := tr.Stats(); got.Conns > test.conns || got.Waiting > 0 || len(got.Declined) > 0 {
				t.Errorf("got %+v, want %d connections at most", got, test.conns)
			}
			if got := most.Load(); got > int64(room*test.conns) {
				t.Errorf("got %d requests at a time", got)
			}
		})
	}
}

// TestSharedUnread: bodies that are not read keep no other from coming, and take a bounded amount of
// memory of each connection: when they have taken most of it calls get another connection.
func TestSharedUnread(t *testing.T) {
	srv, base := newHTTP2Server(t, false, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		p := make([]byte, 16<<10)
		for ; n > 0; n -= len(p) {
			if _, err := w.Write(p); err != nil {
				return
			}
		}
	}))
	tr := New(base)
	defer tr.CloseIdleConnections()
	for range 80 { // a connection holds 64 of them, 1 MiB of each
		resp, err := tr.RoundTrip(newGet(t, srv.URL+"?n=100000000"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	resp, err := tr.RoundTrip(newGet(t, srv.URL+"?n=3000000"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, resp.Body)
	if n < 3_000_000 || err != nil {
		t.Errorf("got %d bytes, %v", n, err)
	}
	resp.Body.Close()
	if s := tr.Stats(); s.Conns < 2 {
		t.Errorf("got %+v, want a second connection", s)
	}
}

func BenchmarkHTTP2(b *testing.B) {
	for _, overTLS := range []bool{true, false} {
		srv, base := newHTTP2Server(b, overTLS, http.HandlerFunc(benchHello))
		defer base.CloseIdleConnections()
		ours := New(base.Clone())
		defer ours.CloseIdleConnections()
		for name, rt := range map[string]http.RoundTripper{"percore": ours, "net": base} {
			b.Run(fmt.Sprint(name, "/", overTLS), func(b *testing.B) { benchGets(b, rt, srv.URL) })
		}
	}
}

// TestSharedHungUp: a server that hangs up behind each answer, without GOAWAY, costs no request, not
// even one that may not be sent again, though it begins before the reader has found the end.
func TestSharedHungUp(t *testing.T) {
	srv := testnet.Serve(t, listen(t), func(nc net.Conn) {
		p, err := frames.NewServerPeer(t, nc)
		if err != nil {
			return
		}
		for line := p.Flush().Next(); !strings.HasSuffix(line, " end"); line = p.Next() {
			if line == "end" || strings.HasPrefix(line, "error:") {
				return
			}
		}
		p.Headers(1, true, ":status", "204").Flush()
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc) // closing would reset the connection
	})
	const calls = 10
	conns := make(chan *testnet.HeldEnd, calls)
	base := &http.Transport{Protocols: clearHTTP2()}
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		held := testnet.HoldEnd(nc)
		conns <- held
		return held, nil
	}
	tr := New(base)
	defer func() { _ = tr.client.Close() }()
	for i := range calls {
		client := &http.Client{Transport: tr, Timeout: testnet.HangTimeout}
		resp, err := client.Post(testnet.URL(srv, false, ""), "text/plain", strings.NewReader("x"))
		if err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
		resp.Body.Close()
		testnet.Eventually(t, "the end", testnet.Receive(t, "a connection of its own", conns).HungUp)
	}
	if s := tr.Stats(); len(s.Declined) > 0 {
		t.Errorf("got %+v, want all requests served here", s)
	}
}
