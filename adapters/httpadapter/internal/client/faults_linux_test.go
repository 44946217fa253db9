//go:build percore_faults && !percore_net

package client

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

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestFailingLook: a look at an idle connection over TLS doesn't wait, whatever the kernel says. If it
// can't say whether something has come, the connection is used again; if reading fails, it isn't.
func TestFailingLook(t *testing.T) {
	for name, test := range map[string]struct {
		op    sys.Op
		errno syscall.Errno
		times int32
		conns int // in the end
	}{
		"ppoll fails":          {sys.OpPpoll, unix.ENOMEM, 1 << 30, 1},
		"a read interrupted":   {sys.OpRead, unix.EINTR, 1, 1},
		"reads interrupted":    {sys.OpRead, unix.EINTR, 20, 1},
		"a read without bytes": {sys.OpRead, unix.EAGAIN, 1, 1},
		"a read fails":         {sys.OpRead, unix.ETIMEDOUT, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			server, tr, _ := secured(t, true)
			h := newHostileOver(t, server, answerHello)
			if got := result(tr, "GET", h.url()); !strings.HasPrefix(got, "200") {
				t.Fatal(got)
			}
			awaitIdle(t, tr)
			var c *conn
			for host := range tr.conns.all {
				host.mu.Lock()
				c = host.idle[0]
				host.mu.Unlock()
			}
			// A first look, so that no session ticket is on its way when calls fail.
			look := func() bool {
				c.nc.CancelOnReadable()
				return c.look() && c.sleep(0) == nil
			}
			if !look() {
				t.Fatal("the connection has ended")
			}
			fd, failed := 0, new(atomic.Int32)
			_ = seam.FD(c.nc).Control(func(n int) syscall.Errno { fd = n; return 0 })
			restore := sys.Inject(func(op sys.Op, of int) syscall.Errno {
				if op != test.op || of != fd || failed.Add(1) > test.times {
					return 0
				}
				return test.errno
			})
			looked := make(chan bool)
			go func() { looked <- look() }()
			if got := testnet.Receive(t, "the look", looked); got != (test.conns == 1) {
				t.Errorf("the look: got %t", got)
			}
			got := make(chan string)
			go func() { got <- result(tr, "GET", h.url()) }()
			if got := testnet.Receive(t, "the answer", got); !strings.HasPrefix(got, "200") {
				t.Error(got)
			}
			restore()
			if failed.Load() == 0 {
				t.Error("no call failed: nothing was tested")
			}
			if n := h.connCount(); n != test.conns {
				t.Errorf("got %d connections, want %d", n, test.conns)
			}
		})
	}
}

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
