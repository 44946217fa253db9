//go:build percore_faults && !percore_net

package reactortls

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestFaults has each call fail, one at a time, in the handshake and after it: no hang, no wrong byte,
// no leak, and Close once, with the error, for each Open.
func TestFaults(t *testing.T) {
	testnet.NoLeaks(t)
	for op, errnos := range map[sys.Op][]syscall.Errno{
		sys.OpRead:     {unix.EINTR, unix.ECONNRESET, unix.EIO},
		sys.OpWrite:    {unix.EINTR, unix.EPIPE, unix.ENOBUFS},
		sys.OpWritev:   {unix.EINTR, unix.EPIPE},
		sys.OpEpollCtl: {unix.ENOMEM},
	} {
		hits := 0
		for _, errno := range errnos {
			for n := int64(1); n <= 8 && playFault(t, op, errno, n); n++ {
				hits++
			}
		}
		if hits == 0 {
			t.Errorf("no %s was made to fail: is it not needed any more?", op)
		}
	}
}

// playFault plays a client that asks for a long answer and ends its stream, and reports whether the n-th
// call failed.
func playFault(t *testing.T, op sys.Op, errno syscall.Errno, n int64) bool {
	t.Helper()
	server, client := testnet.TLS(t)
	long := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	closed, ended := closes()
	var opened atomic.Int64
	s, ln := serve(t, server, Limits{}, &handler{close: closed, open: func(c *reactor.Conn) {
		smallBuffer(c)
		opened.Add(1)
	}, data: func(c *reactor.Conn, p []byte) int {
		c.Write(long)
		return len(p)
	}}, quiet)
	c := dial(t, ln, client)
	var calls atomic.Int64
	var hit atomic.Bool
	restore := sys.Inject(func(called sys.Op, fd int) syscall.Errno {
		if called != op || calls.Add(1) != n {
			return 0
		}
		hit.Store(true)
		return errno
	})
	defer restore()
	c.Write([]byte("x"))
	c.CloseWrite()
	got, _ := io.ReadAll(c)
	c.Close()
	testnet.Eventually(t, "the connection is gone", func() bool { return s.Stats().Conns == 0 })
	restore()
	if !bytes.HasPrefix(long, got) {
		t.Errorf("%s number %d fails with %v: got wrong bytes", op, n, errno)
	}
	if opened.Load() == 1 {
		err := testnet.Receive(t, "Close", ended)
		if err == io.EOF && len(got) != len(long) {
			t.Errorf("%s number %d fails with %v: got %d bytes, want %d", op, n, errno, len(got), len(long))
		}
		if err != io.EOF && !errors.Is(err, errno) {
			t.Errorf("%s number %d fails with %v: Close got %v, want EOF or that", op, n, errno, err)
		}
	}
	if len(ended) != 0 {
		t.Errorf("%s number %d fails with %v: Close came again", op, n, errno)
	}
	testnet.Eventually(t, "all buffers are released", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
	s.Close()
	return hit.Load()
}
