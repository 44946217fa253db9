package http2_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/internal/testnet"
)

// TestClientShareOfSlowServers: servers that don't answer, don't read, or stop in the middle of an
// answer hold up the calls to them, and no others.
func TestClientShareOfSlowServers(t *testing.T) {
	onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
		const slowCalls = 50
		asked := make(chan bool, slowCalls)
		silent := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			if r.URL.Path == "/half" {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
			}
			asked <- true
			_, _ = io.Copy(io.Discard, c)
			return false
		})
		deaf, accepted := listenDeaf(t)
		good := serveRaw(t, func(c net.Conn, r rawRequest) bool {
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(r.body), r.body)
			return true
		})
		client := &http.Client{Transport: newTransport(&http.Transport{MaxIdleConns: 4})}
		ctx, cancel := context.WithCancel(t.Context())
		var slow sync.WaitGroup
		call := func(method, url string, body io.Reader) {
			req, err := http.NewRequestWithContext(ctx, method, url, body)
			if err != nil {
				t.Error(err)
				return
			}
			slow.Go(func() {
				resp, err := client.Do(req)
				if err == nil {
					_, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if err == nil {
					t.Errorf("%s %s: got an answer from a server that doesn't answer", method, url)
				}
			})
		}
		for range slowCalls / 2 {
			call("GET", silent.url+"/none", nil)
			call("GET", silent.url+"/half", nil)
		}
		tooLong := make([]byte, 8<<20) // for the buffers of sockets
		for range slowCalls {
			call("POST", deaf, bytes.NewReader(tooLong))
		}
		for range slowCalls {
			testnet.Receive(t, "a request to a silent server", asked)
			testnet.Receive(t, "a connection to a deaf server", accepted)
		}
		long := strings.Repeat("b", 1<<20)
		for range 20 {
			wantFetched(t, "GET", fetch(t, client, "GET", good.url, ""), "200  <nil>")
			if got := fetch(t, client, "POST", good.url, long); got != "200 "+long+" <nil>" {
				t.Errorf("POST: got %d bytes, %.60q", len(got), got)
			}
		}
		cancel()
		slow.Wait()
	})
}

// listenDeaf listens for connections that it never reads from.
func listenDeaf(t *testing.T) (url string, accepted <-chan bool) {
	t.Helper()
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	conns := make(chan bool, 1000)
	var all []net.Conn
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			all = append(all, c)
			conns <- true
		}
	})
	t.Cleanup(func() {
		ln.Close()
		accepting.Wait()
		for _, c := range all {
			c.Close()
		}
	})
	return "http://" + ln.Addr().String(), conns
}

// TestClientStormOfEnds: a server that ends its connections after a random number of answers, or at
// random moments, is no error for requests that may be sent again. Each gets its own answer.
func TestClientStormOfEnds(t *testing.T) {
	callers, calls := 16, 300
	if testing.Short() {
		calls = 50
	}
	for _, how := range []string{"after an answer", "at a moment", "with a request"} {
		t.Run(how, func(t *testing.T) {
			onBothTransports(t, func(t *testing.T, newTransport func(*http.Transport) http.RoundTripper) {
				s := serveRaw(t, func(c net.Conn, r rawRequest) bool {
					if how == "with a request" && r.n > 0 && rand.IntN(4) == 0 {
						return false
					}
					token := r.Header.Get("X-Token")
					body := token + strings.Repeat("b", rand.IntN(3000))
					if rand.IntN(2) == 0 {
						fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, len(body), body)
					} else {
						fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nX-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", token, len(body), body)
					}
					switch how {
					case "after an answer":
						return rand.IntN(4) > 0
					case "at a moment":
						if r.n == 0 { // once for each connection; the first request has been answered
							after := time.Duration(rand.IntN(3000)) * time.Microsecond
							time.AfterFunc(after, func() { _ = c.(*net.TCPConn).CloseWrite() })
						}
					}
					return true
				})
				rt := newTransport(&http.Transport{MaxIdleConnsPerHost: callers})
				tr, ours := rt.(*httpadapter.Transport)
				client := &http.Client{Transport: rt}
				var all sync.WaitGroup
				for caller := range callers {
					all.Go(func() {
						for i := range calls {
							switch err := callInStorm(client, s.url, fmt.Sprintf("t%d.%d.", caller, i)); {
							case ours && err != nil && tr.Stats().Declined["engine"] == 0:
								t.Errorf("caller %d, call %d: %v", caller, i, err)
								return
							case err != nil: // rare; it fails to write a body
								t.Logf("caller %d, call %d: %v", caller, i, err)
							}
						}
					})
				}
				all.Wait()
			})
		})
	}
}

// callInStorm makes a request that may be sent again, of a random kind, and checks its answer.
func callInStorm(client *http.Client, url, token string) error {
	req, err := http.NewRequest("GET", url, nil)
	switch {
	case err != nil:
		return err
	case rand.IntN(4) == 0:
		if req, err = http.NewRequest("POST", url, strings.NewReader(strings.Repeat("b", rand.IntN(5000)))); err != nil {
			return err
		}
		req.Header.Set("Idempotency-Key", token)
	}
	req.Header.Set("X-Token", token)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if got := resp.Header.Get("X-Token"); err != nil || got != token || strings.TrimRight(string(b), "b") != token {
		return fmt.Errorf("got token %q and body %.40q, %w, want token %q", got, b, err, token)
	}
	return nil
}
