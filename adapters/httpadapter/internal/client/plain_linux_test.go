//go:build !percore_net

package client

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func newTestTransport(t testing.TB) *Transport {
	t.Helper()
	tr := New(&http.Transport{MaxIdleConnsPerHost: 100})
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

func TestPlain(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q", r.RemoteAddr, r.Method, r.URL, body)
	}))
	defer srv.Close()
	tr := newTestTransport(t)
	c := &http.Client{Transport: tr}
	first := ""
	for i := range 10 {
		resp, err := c.Post(srv.URL+"/a?b", "text/plain", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = string(got)
		}
		if string(got) != first {
			t.Errorf("got %q after %q: another connection", got, first)
		}
	}
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range 200 {
				resp, err := c.Get(srv.URL)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadAll(resp.Body); err != nil {
					t.Error(err)
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
}

func BenchmarkGet(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(benchHello))
	defer srv.Close()
	base := &http.Transport{MaxIdleConnsPerHost: 100}
	defer base.CloseIdleConnections()
	for name, rt := range map[string]http.RoundTripper{"percore": newTestTransport(b), "net": base} {
		b.Run(name, func(b *testing.B) { benchGets(b, rt, srv.URL) })
	}
}

// benchHello is the handler of benchmarks.
func benchHello(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "5")
	io.WriteString(w, "hello")
}

func benchGets(b *testing.B, rt http.RoundTripper, url string) {
	b.ReportAllocs()
	req, _ := http.NewRequest("GET", url, nil)
	for b.Loop() {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
