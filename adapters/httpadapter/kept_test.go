package httpadapter

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// If a handler keeps part of a request, or its context, that holds little memory after the connection
// was closed. It holds neither the request nor what crypto/tls has. (http1's TestKept tests all parts.)
func TestHTTP1Kept(t *testing.T) {
	needParking(t)
	if race.Enabled {
		t.Skip("the race detector allocates: run it without -race")
	}
	const (
		n            = 64
		heapBytesMax = 2<<10 + 512 // and what is left of the connections
	)
	type key struct{}
	for name, configure := range map[string]func(f *fixture){
		"plain": nil,
		"with a base that can be cancelled": func(f *fixture) {
			f.srv.BaseContext = func(net.Listener) context.Context { return t.Context() }
		},
	} {
		for what, of := range map[string]func(r *http.Request) any{
			"context":               func(r *http.Request) any { return r.Context() },
			"context that was used": func(r *http.Request) any { r.Context().Done(); return r.Context() },
			"derived context":       func(r *http.Request) any { return context.WithValue(r.Context(), key{}, 1) },
			"host":                  func(r *http.Request) any { return r.Host },
			"address":               func(r *http.Request) any { return r.RemoteAddr },
			"value":                 func(r *http.Request) any { return r.Header.Get("X-Key") },
			"path":                  func(r *http.Request) any { return r.URL.Path },
			"value of the path":     func(r *http.Request) any { return r.PathValue("name") },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				var keep []any // by handlers, one after the other
				mux := http.NewServeMux()
				mux.HandleFunc("/path/{name}", func(rw http.ResponseWriter, r *http.Request) {
					keep = append(keep, of(r))
				})
				f := startOurs(t, mux.ServeHTTP, func(f *fixture) {
					f.srv.ConnState = nil
					if configure != nil {
						configure(f)
					}
				})
				fill := strings.Repeat("f", 30_000)
				round := func() {
					for range n {
						c := f.dial()
						c.send("GET /path/n?" + fill + " HTTP/1.1\r\nHost: test\r\nX-Fill: " + fill + "\r\nX-Key: k\r\n\r\n")
						c.answer()
						c.Close()
					}
					testnet.Eventually(t, "the connections' end", func() bool { return f.server.Stats().Conns == 0 })
				}
				round() // the pools, and the workers' stacks
				keep = nil
				before := testnet.HeapBytes()
				round()
				if got := (testnet.HeapBytes() - before) / n; got > heapBytesMax {
					t.Errorf("a kept %s holds %d bytes, want at most %d", what, got, heapBytesMax)
				}
				f.wantCounted(2 * n)
				runtime.KeepAlive(keep)
			})
		}
	}
}
