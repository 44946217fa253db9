//go:build !percore_net

package http2_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestProxySoak sends many requests through a ReverseProxy to a server that ends its connections at
// random moments: after an answer, and now and then all of those that wait for a request, as when it is
// reloaded. No client notices. With PERCORE_TEST_FULL=1 there are a million requests.
func TestProxySoak(t *testing.T) {
	const clients = 64
	requests := 20_000
	if os.Getenv("PERCORE_TEST_FULL") != "" {
		requests = 1_000_000
	}
	testnet.NoLeaks(t)
	backend := serveRestless(t)
	rt := httpadapter.NewTransport(&http.Transport{MaxIdleConnsPerHost: clients})
	t.Cleanup(rt.CloseIdleConnections)
	proxy := &httputil.ReverseProxy{
		Rewrite:    func(r *httputil.ProxyRequest) { r.SetURL(backend) },
		Transport:  rt,
		BufferPool: new(soakBuffers),
		ErrorLog:   log.New(io.Discard, "", 0),
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, err error) {
			http.Error(rw, err.Error(), http.StatusBadGateway)
		},
	}
	front, _, stop := startServer(t, &http.Server{Handler: proxy}, "http", true)
	t.Cleanup(stop)
	var all sync.WaitGroup
	var failed atomic.Int32
	for client := range clients {
		c := testnet.Dial(t, front)
		all.Go(func() {
			br := bufio.NewReader(c)
			for i := range requests / clients {
				path := fmt.Sprintf("/%d/%d", client, i)
				fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: h\r\n\r\n", path)
				resp, err := http.ReadResponse(br, nil)
				var got []byte
				if err == nil {
					got, err = io.ReadAll(resp.Body)
				}
				if err != nil || string(got) != path {
					if failed.Add(1) < 10 {
						t.Errorf("%s: got %q, %v", path, got, err)
					}
					if err != nil {
						return
					}
				}
			}
		})
	}
	all.Wait()
	stats := rt.Stats()
	t.Logf("%d requests, %d reused a connection, %d were sent again, %d failed", stats.Requests, stats.Reused, stats.Retried, failed.Load())
	if stats.Retried == 0 || len(stats.Declined) > 0 {
		t.Errorf("got %+v, want some retries and no request that is left to the base", stats)
	}
}

type soakBuffers struct{ pool sync.Pool }

func (b *soakBuffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, 32<<10)
}

func (b *soakBuffers) Put(p []byte) { b.pool.Put(&p) }

// serveRestless serves requests with their paths. Of its connections it ends one in 20 after an answer,
// and all that have had one and wait for the next whenever it has answered 500 requests.
func serveRestless(t *testing.T) *url.URL {
	t.Helper()
	var mu sync.Mutex
	waiting := make(map[net.Conn]bool)
	closeWaiting := func() {
		mu.Lock()
		defer mu.Unlock()
		for c := range waiting {
			c.Close()
		}
		clear(waiting)
	}
	var answered atomic.Uint64
	srv := testnet.Serve(t, testnet.Listen(t, net.Listen, testnet.TCP4), func(c net.Conn) {
		br := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(br)
			mu.Lock()
			delete(waiting, c)
			mu.Unlock()
			if err != nil {
				return
			}
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path), req.URL.Path)
			if rand.IntN(20) == 0 {
				return
			}
			mu.Lock()
			waiting[c] = true
			mu.Unlock()
			if answered.Add(1)%500 == 0 {
				closeWaiting()
			}
		}
	})
	return &url.URL{Scheme: "http", Host: srv.Addr().String()}
}
