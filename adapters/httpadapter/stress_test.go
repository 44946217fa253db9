package httpadapter

import (
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestStress makes many clients send requests as connections are being parked and woken. Every
// answer must match its request.
func TestStress(t *testing.T) {
	for _, overTLS := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", overTLS), func(t *testing.T) {
			for _, after := range []time.Duration{0, 200 * time.Microsecond} {
				t.Run(fmt.Sprintf("park after %v", after), func(t *testing.T) { stress(t, overTLS, after) })
			}
		})
	}
}

func stress(t *testing.T, overTLS bool, after time.Duration) {
	clients, requests := 32, 400
	if testing.Short() {
		requests = 60
	}
	echo := func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(rw, "%s %s %v", r.URL.Path, body, err)
	}
	var f *fixture
	var config *tls.Config
	if overTLS {
		f, config = startTLS(t, echo, nil)
	} else {
		f = start(t, echo, nil)
	}
	dial := func() *client {
		if overTLS {
			return f.dialTLS(config)
		}
		return f.dial()
	}
	// Dial the clients here, since a failure here ends the test.
	var all []*client
	for range clients {
		all = append(all, dial())
	}
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 0))
			for n := range requests {
				_ = c.SetDeadline(time.Now().Add(testnet.HangTimeout)) // each: all may take longer
				body := fmt.Sprintf("%d of %d", n, i)
				text := fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: test\r\nContent-Length: %d\r\n\r\n%s", i, len(body), body)
				cut := rng.IntN(len(text))
				for _, piece := range []string{text[:cut], text[cut:]} {
					if _, err := io.WriteString(c, piece); err != nil {
						t.Errorf("client %d, request %d: %v", i, n, err)
						return
					}
					if rng.IntN(2) == 0 {
						time.Sleep(time.Duration(rng.IntN(400)) * time.Microsecond)
					}
				}
				resp, err := http.ReadResponse(c.br, nil)
				if err != nil {
					t.Errorf("client %d, request %d: %v", i, n, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				if want := fmt.Sprintf("/%d %s <nil>", i, body); string(got) != want || err != nil {
					t.Errorf("client %d, request %d: got %q, %v, want %q", i, n, got, err, want)
					return
				}
			}
		})
	}
	wg.Wait()
	if !canPark {
		return
	}
	f.awaitParked(clients)
	s := f.server.Stats()
	t.Logf("%+v", s)
}

// TestStressEnds closes connections from all sides as they are parked and woken. Each end must be
// reported once, and no connection may be left behind.
func TestStressEnds(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	for round := range rounds {
		f := start(t, echoPath, nil)
		const clients = 24
		var all []*client
		for range clients {
			all = append(all, f.dial())
		}
		testnet.Eventually(t, "all connections being accepted", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.states) == clients
		})
		var wg sync.WaitGroup
		for i, c := range all {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for range rng.IntN(6) {
					if _, err := io.WriteString(c, request("/")); err != nil {
						return
					}
					if resp, err := http.ReadResponse(c.br, nil); err != nil {
						return
					} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
						return
					}
					time.Sleep(time.Duration(rng.IntN(300)) * time.Microsecond)
				}
				c.Close()
			})
		}
		for nc := range f.snapshot() {
			if round%2 == 0 {
				break
			}
			wg.Go(func() { nc.Close() }) // the user
		}
		time.Sleep(rand.N(2 * time.Millisecond))
		f.shutdown()
		testnet.Within(t, "the clients", wg.Wait)
		testnet.Eventually(t, "all connections being reported closed, once", func() bool {
			for _, states := range f.snapshot() {
				closed := 0
				for _, state := range states {
					if state == "closed" {
						closed++
					}
				}
				if closed != 1 || states[len(states)-1] != "closed" {
					return false
				}
			}
			return true
		})
	}
}
