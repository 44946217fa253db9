package h2

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestStress plays random requests on several connections, while some clients cancel theirs, some
// hang up, and the server is drained or closed in the middle. Answers must be whole and right or
// fail; no handler may be left.
func TestStress(t *testing.T) {
	eachWay(t, func(t *testing.T, start func(Handler, Config) *fixture) {
		for round := range 4 {
			var running atomic.Int64
			handler := HandlerFunc(func(s *Stream, r *Request) {
				running.Add(1)
				defer running.Add(-1)
				switch r.Path {
				case "/early":
					hello(s, r)
				case "/flush":
					for i := range 5 {
						if s.Send(Message{Status: []int{200, 0}[min(i, 1)], Body: []byte("part")}) != nil || s.Flush() != nil {
							return
						}
					}
					_ = s.Send(Message{Trailers: []Field{MakeField("x-end", "1")}})
				default:
					echo(s, r)
				}
			})
			f := start(handler, Config{StreamWindow: 20000})
			var wg sync.WaitGroup
			for range 3 {
				client := f.client()
				for i := range 20 {
					wg.Go(func() { stressOne(t, client, f, i) })
				}
			}
			switch round {
			case 1:
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				f.shutdown()
			case 2:
				time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				f.server.Close()
			}
			wg.Wait()
			f.server.Close()
			testnet.Eventually(t, "the handlers' end", func() bool { return running.Load() == 0 })
		}
	})
}

// stressOne makes requests.
func stressOne(t *testing.T, client *http.Client, f *fixture, i int) {
	for j := range 5 {
		size := []int{0, 1, 100, 5000, 30000, 200000}[rand.IntN(6)]
		body := strings.Repeat(fmt.Sprint(i, j, " "), size/4)
		path := []string{"/", "/early", "/flush"}[rand.IntN(3)]
		resp, err := client.Post(f.url(path), "text/plain", strings.NewReader(body))
		if err != nil {
			continue // cancelled by the server's end
		}
		if rand.IntN(4) == 0 {
			resp.Body.Close()
			continue
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		want := map[string]string{"/": body, "/early": "Hello, World!", "/flush": strings.Repeat("part", 5)}[path]
		if err == nil && string(got) != want {
			t.Errorf("%s: got %d bytes, want %d", path, len(got), len(want))
		}
	}
}
