package http2_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// webServer starts a server of net/http's. /long is an answer that ends when release is closed, and
// /header has a long header.
func webServer(t *testing.T, isHTTP2, overTLS bool, streams int) (srv *httptest.Server, client *tls.Config, release chan struct{}) {
	release = make(chan struct{})
	srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = io.WriteString(w, "begun")
			_ = http.NewResponseController(w).Flush()
			<-release
		case "/header":
			for range 6 { // one as long may end a connection of HTTP/2
				w.Header().Add("Long", strings.Repeat("x", 1000))
			}
		}
		_, _ = io.WriteString(w, "hello")
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Config.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: streams}
	srv.Config.Protocols = protocols(isHTTP2, overTLS)
	t.Cleanup(srv.Close)
	if overTLS {
		srv.TLS, client = testnet.TLS(t)
		srv.EnableHTTP2 = isHTTP2
		srv.StartTLS()
	} else {
		srv.Start()
	}
	return srv, client, release
}

func protocols(isHTTP2, overTLS bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!isHTTP2)
	p.SetHTTP2(isHTTP2 && overTLS)
	p.SetUnencryptedHTTP2(isHTTP2 && !overTLS)
	return p
}

// TestLimitsBesideLongAnswer: while one answer goes on calls to the same server reach a limit. They go
// on, wait for the end of the answer, or fail, as with http.Transport. Calls to another server go on, a
// call that waits can be cancelled, and the answer is whole.
func TestLimitsBesideLongAnswer(t *testing.T) {
	const http1, http2 = 1, 2
	for name, test := range map[string]struct {
		change  func(*http.Transport)
		version int // of HTTP; 0: both
		streams int // at a time
		waits   bool
		path    string // of the other calls
		want    string
	}{
		"MaxConnsPerHost 1":         {change: func(base *http.Transport) { base.MaxConnsPerHost = 1 }, version: http1, waits: true},
		"MaxConnsPerHost 2":         {change: func(base *http.Transport) { base.MaxConnsPerHost = 2 }},
		"MaxConnsPerHost 1, shared": {change: func(base *http.Transport) { base.MaxConnsPerHost = 1 }, version: http2, streams: 100},
		"one stream":                {version: http2, streams: 1},
		"one stream, strict": {change: func(base *http.Transport) {
			base.HTTP2 = &http.HTTP2Config{StrictMaxConcurrentRequests: true}
		}, version: http2, streams: 1, waits: true},
		"MaxIdleConns 1":        {change: func(base *http.Transport) { base.MaxIdleConns = 1 }},
		"MaxIdleConnsPerHost 1": {change: func(base *http.Transport) { base.MaxIdleConnsPerHost = 1 }},
		"no idle connections":   {change: func(base *http.Transport) { base.DisableKeepAlives = true }},
		"MaxResponseHeaderBytes, HTTP/1": {
			change:  func(base *http.Transport) { base.MaxResponseHeaderBytes = 5000 },
			version: http1, path: "/header", want: "error net/http: HTTP/1.x transport connection broken: net/http: server response headers exceeded 5000 bytes; aborted",
		},
		"MaxResponseHeaderBytes, HTTP/2": {
			change:  func(base *http.Transport) { base.MaxResponseHeaderBytes = 5000 },
			version: http2, path: "/header", want: "error stream error: stream ID 3; PROTOCOL_ERROR; http2: response header list larger than advertised limit",
		},
	} {
		for i := range 4 {
			isHTTP2, overTLS := i&1 > 0, i&2 > 0
			if test.version == http1 && isHTTP2 || test.version == http2 && !isHTTP2 {
				continue
			}
			t.Run(fmt.Sprintf("%s, HTTP/2 %t, TLS %t", name, isHTTP2, overTLS), func(t *testing.T) {
				onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
					srv, config, release := webServer(t, isHTTP2, overTLS, test.streams)
					other, _, _ := webServer(t, isHTTP2, overTLS, 0)
					base := &http.Transport{Protocols: protocols(isHTTP2, overTLS), TLSClientConfig: config}
					if test.change != nil {
						test.change(base)
					}
					rt := newTransport(base)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					begin := func(ctx context.Context, url string) <-chan string {
						result := make(chan string, 1)
						go func() { result <- outcome(ctx, rt, url) }()
						return result
					}
					req, _ := http.NewRequest("GET", srv.URL+"/long", nil)
					long, err := rt.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					defer long.Body.Close()
					canceled, waits := begin(ctx, srv.URL+test.path), begin(t.Context(), srv.URL+test.path)
					for range 3 {
						wantFetched(t, "another server", outcome(t.Context(), rt, other.URL), "hello")
					}
					if test.want == "" {
						test.want = "hello"
					}
					if !test.waits {
						wantOutcome(t, "beside it", test.want, canceled)
						wantOutcome(t, "beside it", test.want, waits)
					} else {
						if len(canceled)+len(waits) > 0 {
							t.Error("got an answer beside the long one, want the calls to wait")
						}
						cancel()
						wantOutcome(t, "a call that waits", "error context canceled", canceled)
					}
					close(release)
					b, err := io.ReadAll(long.Body)
					wantFetched(t, "the long answer", fmt.Sprintf("%s %v", b, err), "begunhello <nil>")
					if test.waits {
						wantOutcome(t, "the call that has waited", test.want, waits)
					}
					wantFetched(t, "behind it", outcome(t.Context(), rt, srv.URL), "hello")
				})
			})
		}
	}
}

// outcome makes a call, and returns the body of its answer, or the error.
func outcome(ctx context.Context, rt http.RoundTripper, url string) string {
	req, err := http.NewRequestWithContext(ctx, "GET", url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return "error " + err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "error of the body " + err.Error()
	}
	return string(b)
}

// wantOutcome compares. Which stream has failed is chance.
func wantOutcome(t *testing.T, what, want string, result <-chan string) {
	t.Helper()
	got := testnet.Receive(t, what, result)
	wantFetched(t, what, strings.Replace(got, "stream ID 5", "stream ID 3", 1), want)
}

// TestSharedConfig: one http.Transport, its Clone, and one tls.Config may be used by several transports
// at a time, whichever protocols they have chosen. config names those of HTTP/2 then, also where that is
// off: such a call fails if the server has chosen them.
func TestSharedConfig(t *testing.T) {
	testnet.NoLeaks(t)
	for _, serverHTTP2 := range []bool{false, true} {
		srv, config, _ := webServer(t, serverHTTP2, true, 0)
		shared := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
		wantFetched(t, "http.Transport", outcome(t.Context(), shared, srv.URL), "hello") // writes to config
		http1 := shared.Clone()
		http1.Protocols = new(http.Protocols)
		http1.Protocols.SetHTTP1(true)
		only1 := outcome(t.Context(), http1.Clone(), srv.URL)[:5] // "error" if the server speaks HTTP/2 then
		type user struct {
			rt   http.RoundTripper
			want string
		}
		var users []user
		for _, base := range []*http.Transport{shared, shared, shared.Clone(), {TLSClientConfig: config, ForceAttemptHTTP2: true}, http1, http1.Clone()} {
			want := "hello"
			if base.Protocols != nil {
				want = only1
			}
			ours := httpadapter.NewTransport(base)
			t.Cleanup(ours.CloseIdleConnections)
			users = append(users, user{ours, want}, user{ours, want}, user{base, want})
			wantFetched(t, "the first call", outcome(t.Context(), ours, srv.URL)[:5], want) // the base may write to config
			wantFetched(t, "the first call", outcome(t.Context(), base, srv.URL)[:5], want)
		}
		var all sync.WaitGroup
		for _, u := range users {
			all.Go(func() {
				for range 5 {
					if got := outcome(t.Context(), u.rt, srv.URL); got[:5] != u.want {
						t.Errorf("got %q, want %q", got, u.want)
					}
				}
			})
		}
		all.Wait()
	}
}
