//go:build percore_faults

package sys

import (
	"sync/atomic"
	"syscall"
)

var hook atomic.Pointer[func(op Op, fd int) syscall.Errno]

// Inject makes f decide the fate of every call from now on, until the returned function is called:
// the call is skipped and fails with f's errno, or is made as usual when that is 0. f is called
// from any goroutine, including a loop's, concurrently, and must not block. A close(2) is made even
// when it is told to fail, as on Linux, where the descriptor is gone even if close fails (close(2),
// "Dealing with error returns from close").
func Inject(f func(op Op, fd int) syscall.Errno) (restore func()) {
	old := hook.Swap(&f)
	return func() { hook.Store(old) }
}

func injected(op Op, fd int) syscall.Errno {
	if f := hook.Load(); f != nil {
		return (*f)(op, fd)
	}
	return 0
}
