//go:build percore_faults

package testnet

import (
	"math/rand/v2"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// FatalFaults are errors that the system calls of a connection may fail with, and that may end it.
var FatalFaults = map[sys.Op][]syscall.Errno{
	sys.OpRead:     {unix.EINTR, unix.ECONNRESET, unix.ETIMEDOUT, unix.ENOMEM},
	sys.OpWrite:    {unix.EINTR, unix.ECONNRESET, unix.EPIPE, unix.ENOBUFS},
	sys.OpWritev:   {unix.EINTR, unix.ECONNRESET, unix.EPIPE, unix.ENOMEM},
	sys.OpEpollCtl: {unix.ENOMEM, unix.ENOSPC},
	sys.OpPpoll:    {unix.EINTR, unix.ENOMEM},
	sys.OpShutdown: {unix.ENOTCONN},
	sys.OpClose:    {unix.EINTR, unix.EIO},
}

// InjectAtRandom makes one in so many system calls fail with one of its faults, until restore is called.
func InjectAtRandom(faults map[sys.Op][]syscall.Errno, one int) (restore func()) {
	return sys.Inject(func(op sys.Op, _ int) syscall.Errno {
		if of := faults[op]; len(of) > 0 && rand.IntN(one) == 0 {
			return of[rand.IntN(len(of))]
		}
		return 0
	})
}
