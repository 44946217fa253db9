package httpadapter

import (
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

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
