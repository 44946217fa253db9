package http2_test

import (
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
)

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
