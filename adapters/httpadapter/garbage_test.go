package httpadapter

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// If a handler drops a hijacked connection, it is closed, as with net/http. A connection that waits
// for a request is not closed, even though the user holds no reference to it.
func TestGarbage(t *testing.T) {
	for _, netHTTP := range []bool{true, false} {
		t.Run(fmt.Sprintf("net/http=%t", netHTTP), func(t *testing.T) {
			if netHTTP {
				leaveToNetHTTP(t)
			}
			f := start(t, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/drop" {
					echoPath(rw, r)
					return
				}
				c, _, err := rw.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}, func(f *fixture) { f.srv.ConnState = nil })
			c := f.dial()
			c.get("/first")
			if canPark && !netHTTP {
				f.awaitParked(1)
			}
			for range 3 {
				runtime.GC()
			}
			c.get("/second")
			c.get("/drop")
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				c.awaitEOF()
			}()
			testnet.Eventually(t, "closing the hijacked connection", func() bool {
				runtime.GC()
				select {
				case <-closed:
					return true
				default:
					return false
				}
			})
		})
	}
}
