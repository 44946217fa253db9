package httpadapter

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// TestLimits: if the limit of an http.MaxBytesReader is reached, the answer comes at once, while the
// rest of the body is still to come, and the connection ends. Otherwise it goes on. See acts for what
// the handlers do.
func TestLimits(t *testing.T) {
	needParking(t)
	const size = 6000      // more than comes with the header
	var all sync.WaitGroup // since net/http waits before it closes such a connection
	defer all.Wait()
	check := func(met bool, todos ...string) {
		for _, todo := range todos {
			pair := newPair(t, withAdapter, nil)
			all.Go(func() {
				for _, sent := range []int{8, 5000, size} { // before the client awaits the answer
					if !met && sent < size {
						continue // the handler waits for it
					}
					text := doing(todo, fmt.Sprint("Content-Length: ", size)) + strings.Repeat("b", size)
					end := len(text) - size + sent
					got := pair.play(t, &connectionScript{pieces: []piece{
						{text[:end], true}, {text: text[end:] + "GET " + lastTarget + " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"},
					}, end: readsOn})
					if ends := !strings.Contains(got, "GET "+lastTarget); ends != met {
						t.Errorf("%s, %d bytes: the connection ends: %t, want %t: %s", todo, sent, ends, met, got)
					}
				}
			})
		}
	}
	check(true, "mw", "7w", "zw", "jw", "1m1w", "vmvw", "mvKCw", "mA4w", "4mw", "dfmw", "m", "5mw")
	check(false, "Mw", "iw", "pw", "Rw")
}

// A goroutine of the handler may continue with the request after the handler has returned, as with
// an http.TimeoutHandler. The server must no longer use anything that the goroutine may use, which
// the race detector checks.
func TestGoroutineBeyondHandler(t *testing.T) {
	returned := make(chan bool)
	ended := make(chan bool, 1)
	inner := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		defer func() { ended <- true }()
		<-r.Context().Done()
		for err := error(nil); err == nil; {
			_, err = r.Body.Read(make([]byte, 2, 3))
		}
		r.Body, r.Header, r.MultipartForm = http.NoBody, nil, nil
		<-returned
	})
	f := startOurs(t, func(rw http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(rw, r.Body, 1000)
		http.TimeoutHandler(inner, time.Millisecond, "late").ServeHTTP(rw, r)
	}, nil)
	for _, text := range []string{post("/", 10) + "0123456789", post("/", 5000) + strings.Repeat("b", 5000)} {
		c := f.dial()
		c.send(text)
		if got := c.answer(); got != "late" {
			t.Errorf("got %q", got)
		}
		returned <- true
		testnet.Receive(t, "the goroutine's end", ended)
		c.Close()
	}
	f.wantCounted(2)
}
