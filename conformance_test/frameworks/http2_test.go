package frameworks

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// onHTTP2 runs a script over HTTP/2, in clear and over TLS, on net/http's server and on percore's. The
// server that start makes speaks HTTP/1.1 as well.
func onHTTP2(t *testing.T, script func(s *stage, start func(*http.Server) *site)) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS=%t", secure), func(t *testing.T) {
			onWays(t, http2Ways, func(s *stage) {
				script(s, func(srv *http.Server) *site {
					with := setup{http2: !secure}
					if secure {
						with.serverTLS, with.clientTLS = testnet.TLS(s)
					}
					srv.Protocols = allProtocols()
					srv.ErrorLog = log.New(io.Discard, "", 0)
					st := s.start(srv, with)
					st.adapter = nil // connections of HTTP/2 are not parked
					return st
				})
			})
		})
	}
}

func allProtocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	p.SetHTTP2(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// TestFrameworksHTTP2 visits the apps over HTTP/2.
func TestFrameworksHTTP2(t *testing.T) {
	dir := t.TempDir()
	content := strings.Repeat("0123456789", fileBytes/10)
	if err := os.WriteFile(filepath.Join(dir, "file.bin"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, a := range apps {
		t.Run(a.name, func(t *testing.T) {
			onHTTP2(t, func(s *stage, start func(*http.Server) *site) {
				l := newLow()
				st := start(&http.Server{Handler: a.handler(l, dir)})
				visitPages(st, content)
				watchStream(st, l)
				goAway(st, l)
				r, w := io.Pipe()
				defer w.Close()
				s.want("a deadline", st.do("POST", "/late", "text/plain", r), "set: <nil>, timeout true")
				s.want("the last page", st.get("/hello/last"), "hello last")
			})
		})
	}
}

// TestNothingLost: a server is replaced again and again, with Shutdown, while clients send requests
// with bodies, and cancel some. Each request that was not cancelled is answered: with two GOAWAYs no
// request can be on its way when the last stream is named.
func TestNothingLost(t *testing.T) {
	for name, transport := range map[string]func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper{
		"net/http": func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper {
			tr := &http.Transport{Protocols: new(http.Protocols), DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) { return dial(ctx, network) }}
			tr.Protocols.SetUnencryptedHTTP2(true)
			return tr
		},
		"x/net": func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper {
			//lint:ignore SA1019 programs use it
			return &http2.Transport{AllowHTTP: true, DialTLSContext: func(ctx context.Context, network, _ string, _ *tls.Config) (net.Conn, error) {
				return dial(ctx, network)
			}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			replaceServers(t, transport)
		})
	}
}

func replaceServers(t *testing.T, transport func(dial func(context.Context, string) (net.Conn, error)) http.RoundTripper) {
	var addr atomic.Value
	var served atomic.Int64
	start := func() (stop func()) {
		srv := &http.Server{Protocols: allProtocols(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			if r.URL.Path == "/wait" {
				<-r.Context().Done()
				return
			}
			_, _ = io.Copy(w, r.Body)
		})}
		server := httpadapter.Wrap(srv)
		ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(ln) }()
		addr.Store(ln.Addr().String())
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
			defer cancel()
			if err := server.Shutdown(ctx); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			testnet.Receive(t, "Serve ending", ended)
		}
	}
	rt := transport(func(ctx context.Context, network string) (net.Conn, error) {
		// x/net lets other requests wait for the connection that a request dials, which may be cancelled.
		return new(net.Dialer).DialContext(context.WithoutCancel(ctx), network, addr.Load().(string))
	})
	defer rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
	client := &http.Client{Transport: rt}
	stop := start()
	var clients sync.WaitGroup
	done := make(chan bool)
	var answered atomic.Int64
	for i := range 8 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				if rand.IntN(10) == 0 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(2000))*time.Microsecond)
					req, _ := http.NewRequestWithContext(ctx, "GET", "http://example.com/wait", nil)
					if resp, err := client.Do(req); err == nil {
						resp.Body.Close()
					}
					cancel()
					continue
				}
				want := strings.Repeat(fmt.Sprint(i, " ", n, ","), rand.IntN(3000))
				resp, err := client.Post("http://example.com/", "text/plain", strings.NewReader(want))
				if err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != want {
					t.Errorf("client %d, request %d: got %d bytes, %v, want %d", i, n, len(got), err, len(want))
					return
				}
				answered.Add(1)
			}
		})
	}
	for range 10 {
		at := answered.Load()
		testnet.Eventually(t, "requests on the new server", func() bool { return answered.Load() > at+100 || t.Failed() })
		if t.Failed() {
			break
		}
		stopOld := stop
		stop = start()
		stopOld()
	}
	close(done)
	clients.Wait()
	stop()
	t.Logf("%d requests were answered, %d arrived", answered.Load(), served.Load())
}
