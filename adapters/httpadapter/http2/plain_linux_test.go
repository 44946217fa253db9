//go:build !percore_net

package http2

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

func newTestTransport(t testing.TB) *Transport {
	t.Helper()
	tr := New(&http.Transport{MaxIdleConnsPerHost: 100})
	t.Cleanup(tr.CloseIdleConnections)
	return tr
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
