//go:build percore_faults && !percore_net

package http2

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestFailingUpload: a write of the body fails with an error that doesn't end the connection. The server
// waits for the rest, so the call must not wait for the answer.
func TestFailingUpload(t *testing.T) {
	for name, body := range map[string]func(r *strings.Reader) io.Reader{
		"in memory": func(r *strings.Reader) io.Reader { return r },
		"counted":   func(r *strings.Reader) io.Reader { return io.LimitReader(r, 1<<20) },
		"chunked":   func(r *strings.Reader) io.Reader { return struct{ io.Reader }{r} },
	} {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %t", name, secure), func(t *testing.T) {
				server, tr, _ := secured(t, secure)
				h := newHostileOver(t, server, answerHello)
				if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
					t.Fatal(got)
				}
				awaitIdle(t, tr)
				req, err := http.NewRequest("POST", h.url(), body(strings.NewReader(strings.Repeat("x", 1<<20))))
				if err != nil {
					t.Fatal(err)
				}
				if name == "counted" {
					req.ContentLength = 1 << 20
				}
				var writes atomic.Int32
				defer sys.Inject(func(op sys.Op, _ int) syscall.Errno {
					if (op == sys.OpWrite || op == sys.OpWritev) && writes.Add(1) == 2 { // the first has the header
						return unix.ENOBUFS
					}
					return 0
				})()
				failed := make(chan error, 1)
				go func() {
					_, err := tr.RoundTrip(req)
					failed <- err
				}()
				if err := testnet.Receive(t, "the call's end", failed); !errors.Is(err, unix.ENOBUFS) {
					t.Errorf("got %v, want ENOBUFS", err)
				}
				testnet.Eventually(t, "the connection is closed", func() bool { return tr.Stats().Conns == 0 })
			})
		}
	}
}
