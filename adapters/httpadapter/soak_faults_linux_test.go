//go:build percore_faults && !percore_net

package httpadapter

import (
	"math/rand/v2"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestFastPathSoakFaults is the soak test with system calls that fail at random. Connections end,
// but no answer is wrong, no client hangs, and nothing is left behind.
func TestFastPathSoakFaults(t *testing.T) {
	testnet.NoLeaks(t)
	defer injectAtRandom()()
	soak(t, true, func() {})
}

// The same over TLS, once the handshake is done.
func TestFastTLSSoakFaults(t *testing.T) {
	testnet.NoLeaks(t)
	restore := func() {}
	defer func() { restore() }()
	soak(t, true, func() { restore = injectAtRandom() })
}

// injectAtRandom makes one system call in 300 fail, until restore is called.
func injectAtRandom() (restore func()) {
	errnos := map[sys.Op][]syscall.Errno{
		sys.OpRead:        {unix.EINTR, unix.ECONNRESET, unix.ETIMEDOUT, unix.ENOMEM},
		sys.OpWrite:       {unix.EINTR, unix.ECONNRESET, unix.EPIPE, unix.ENOBUFS},
		sys.OpWritev:      {unix.EINTR, unix.ECONNRESET, unix.EPIPE, unix.ENOMEM},
		sys.OpEpollCtl:    {unix.ENOMEM, unix.ENOSPC},
		sys.OpPpoll:       {unix.EINTR, unix.ENOMEM},
		sys.OpGetsockname: {unix.ENOBUFS},
		sys.OpShutdown:    {unix.ENOTCONN},
		sys.OpClose:       {unix.EINTR, unix.EIO},
	}
	return sys.Inject(func(op sys.Op, _ int) syscall.Errno {
		of := errnos[op]
		if len(of) == 0 || rand.IntN(300) != 0 {
			return 0
		}
		return of[rand.IntN(len(of))]
	})
}
