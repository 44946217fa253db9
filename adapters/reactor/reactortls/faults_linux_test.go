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
	testnet.SweepFaults(t, map[sys.Op][]syscall.Errno{
		sys.OpRead:     {unix.EINTR, unix.ECONNRESET, unix.EIO},
		sys.OpWrite:    {unix.EINTR, unix.EPIPE, unix.ENOBUFS},
		sys.OpWritev:   {unix.EINTR, unix.EPIPE},
		sys.OpEpollCtl: {unix.ENOMEM},
	}, 8, func(f *testnet.Fault) { playFault(t, f) })
}

// playFault plays a client that asks for a long answer and ends its stream.
func playFault(t *testing.T, f *testnet.Fault) {
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
	restore := f.Inject(nil)
	defer restore()
	c.Write([]byte("x"))
	c.CloseWrite()
	got, _ := io.ReadAll(c)
	c.Close()
	testnet.Eventually(t, "the connection is gone", func() bool { return s.Stats().Conns == 0 })
	restore()
	if !bytes.HasPrefix(long, got) {
		t.Errorf("%v: got wrong bytes", f)
	}
	if opened.Load() == 1 {
		err := testnet.Receive(t, "Close", ended)
		if err == io.EOF && len(got) != len(long) {
			t.Errorf("%v: got %d bytes, want %d", f, len(got), len(long))
		}
		if err != io.EOF && !errors.Is(err, f.Errno) {
			t.Errorf("%v: Close got %v, want EOF or that", f, err)
		}
	}
	if len(ended) != 0 {
		t.Errorf("%v: Close came again", f)
	}
	testnet.Eventually(t, "all buffers are released", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
	s.Close()
}
