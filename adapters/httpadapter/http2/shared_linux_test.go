//go:build !percore_net

package http2

import (
	"bytes"
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
	srv.Config.Protocols.SetHTTP1(true)
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

// TestOwnAnswers: with many callers, calls that are cancelled anywhere, and bodies that are left early
// or that the server doesn't read, each answer is that of its request. Over HTTP/2 the calls share a
// connection, and their streams end.
func TestOwnAnswers(t *testing.T) {
	quiet(t)
	onBoth(t, func(t *testing.T, overTLS bool) {
		srv, base := newHTTP2Server(t, overTLS, http.HandlerFunc(answerOwn))
		http1 := &http.Transport{TLSClientConfig: base.TLSClientConfig.Clone(), MaxIdleConnsPerHost: callersMost}
		t.Run("HTTP/1.1", func(t *testing.T) { callMany(t, New(http1), srv.URL, callersMost) })
		t.Run("HTTP/2", func(t *testing.T) { callMany(t, New(base), srv.URL, 1) })
	})
}

// callersMost is how many callers there are at a time.
const callersMost = 16

func callMany(t *testing.T, tr *Transport, url string, conns int) {
	defer tr.CloseIdleConnections()
	const calls = 60
	var wg sync.WaitGroup
	for caller := range callersMost {
		wg.Go(func() {
			for i := range calls {
				callOwn(t, tr, url, fmt.Sprintf("/%d-%d", caller, i), i)
			}
		})
	}
	wg.Wait()
	if tr.client != nil {
		noStreams(t, tr)
	}
	if s := tr.Stats(); s.Conns > conns || len(s.Declined) > 0 {
		t.Errorf("got %+v, want %d connections at most", s, conns)
	}
}

// answerOwn answers with the path, and the request's body, which it doesn't always read. The query is
// the number of the call.
func answerOwn(w http.ResponseWriter, r *http.Request) {
	i, _ := strconv.Atoi(r.URL.RawQuery)
	h := w.Header()
	h.Set("X-Path", r.URL.Path)
	if i%2 == 0 {
		h.Set("Trailer", "T")
	}
	if i%11 == 0 && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	if i%6 == 0 {
		w.WriteHeader(http.StatusNotFound) // so the client sends no more
	}
	if i%3 == 0 {
		_, _ = io.WriteString(w, r.URL.Path)
	} else {
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.URL.Path+string(body))
	}
	h.Set("T", "end"+r.Trailer.Get("U"))
}

// callOwn makes the i-th call of a caller, and checks its answer.
func callOwn(t *testing.T, rt http.RoundTripper, url, path string, i int) {
	text := strings.Repeat(path, 4*i*i)
	bodies := []io.Reader{strings.NewReader(text), bytes.NewReader([]byte(text)), onlyReader{strings.NewReader(text)}}
	req, _ := http.NewRequest("POST", fmt.Sprint(url, path, "?", i), bodies[i%len(bodies)])
	switch i % 4 {
	case 0:
		ctx, cancel := context.WithCancel(req.Context())
		defer cancel()
		go cancel()
		req = req.WithContext(ctx)
	case 1:
		req.Body, req.ContentLength = io.NopCloser(onlyReader{strings.NewReader(text)}), int64(len(text))
	case 2:
		if i%3 != 0 { // else the server may take the trailers of a stream that it has reset for an error
			req.Trailer = http.Header{"U": {"u"}}
		}
		req.Body, req.ContentLength = io.NopCloser(onlyReader{strings.NewReader(text)}), -1
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		if i%4 != 0 {
			t.Errorf("%s: %v", path, err)
		}
		return
	}
	defer resp.Body.Close()
	if got := resp.Header.Get("X-Path"); got != path {
		t.Errorf("got the answer to %s, want that to %s", got, path)
	}
	if i%7 == 0 {
		_, _ = io.CopyN(io.Discard, resp.Body, int64(i%20))
		return
	}
	want, trailer := path+text, ""
	if i%3 == 0 {
		want = path
	}
	if i%2 == 0 {
		trailer = "end"
	}
	if i%4 == 2 && i%3 != 0 {
		trailer += "u"
	}
	got, err := io.ReadAll(resp.Body)
	if i%4 == 0 && (err != nil || strings.HasPrefix(want, string(got))) {
		return // it was cancelled: over TLS the server may answer the part that came before the farewell
	}
	if string(got) != want || err != nil || resp.Trailer.Get("T") != trailer {
		t.Errorf("%s: got %d bytes %.50q, %v, %v; want %d bytes, trailer %q", path, len(got), got, err, resp.Trailer, len(want), trailer)
	}
}

// noStreams waits until all streams have ended.
func noStreams(t *testing.T, tr *Transport) {
	t.Helper()
	testnet.Eventually(t, "the end of all streams", func() bool { return tr.client.Stats().Streams == 0 })
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
	for h := range tr.conns.Hosts {
		if _, took := h.State(); took == 0 {
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
