//go:build percore_faults && !percore_net

package pool

import (
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestFailingLook: a look at a connection over TLS doesn't wait, whatever the kernel says. If it can't
// say whether something has come, the connection is used again; if reading fails, it isn't.
func TestFailingLook(t *testing.T) {
	for name, test := range map[string]struct {
		op    sys.Op
		errno syscall.Errno
		times int32
		again bool
	}{
		"ppoll fails":          {sys.OpPpoll, unix.ENOMEM, 1 << 30, true},
		"a read interrupted":   {sys.OpRead, unix.EINTR, 1, true},
		"reads interrupted":    {sys.OpRead, unix.EINTR, 20, true},
		"a read without bytes": {sys.OpRead, unix.EAGAIN, 1, true},
		"a read fails":         {sys.OpRead, unix.ETIMEDOUT, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, r, _ := newPool(t, true)
			c := take(t, p, r)
			look := func() bool { return c.Link.Look() }
			if !look() {
				t.Fatal("the connection has ended")
			}
			below := c.Link.Shown().(*tls.Conn).NetConn().(interface{ NetConn() net.Conn }).NetConn()
			fd, failed := 0, new(atomic.Int32)
			_ = seam.FD(below).Control(func(n int) syscall.Errno { fd = n; return 0 })
			restore := sys.Inject(func(op sys.Op, of int) syscall.Errno {
				if op != test.op || of != fd || failed.Add(1) > test.times {
					return 0
				}
				return test.errno
			})
			looked := make(chan bool)
			go func() { looked <- look() }()
			if got := testnet.Receive(t, "the look", looked); got != test.again {
				t.Errorf("the look: got %t", got)
			}
			_ = c.Put()
			got := make(chan *Conn)
			go func() { got <- take(t, p, r) }()
			next := testnet.Receive(t, "a connection", got)
			defer next.Close()
			if (next == c) != test.again {
				t.Errorf("the connection is used again: %t", next == c)
			}
			restore()
			if failed.Load() == 0 {
				t.Error("no call failed: nothing was tested")
			}
		})
	}
}
