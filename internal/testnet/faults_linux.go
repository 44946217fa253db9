//go:build percore_faults

package testnet

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"

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

// A Fault makes the N-th call of Op fail with Errno.
type Fault struct {
	Op    sys.Op
	N     int64 // from 1
	Errno syscall.Errno

	calls atomic.Int64
	hit   atomic.Bool
}

// String says which call fails, and how.
func (f *Fault) String() string {
	return fmt.Sprintf("%s number %d fails with %s", f.Op, f.N, unix.ErrnoName(f.Errno))
}

// Inject counts calls, and makes the N-th fail, until restore is called. If canBe is not nil it is
// called before, and reports whether the kernel could return the error.
func (f *Fault) Inject(canBe func(fd int) bool) (restore func()) {
	return sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if op != f.Op || f.calls.Add(1) != f.N || canBe != nil && !canBe(fd) {
			return 0
		}
		f.hit.Store(true)
		return f.Errno
	})
}

// Hit reports whether the call has failed.
func (f *Fault) Hit() bool { return f.hit.Load() }

// SweepFaults has play inject each fault of the first calls, one at a time. It fails the test if an
// operation is not made to fail at all.
func SweepFaults(t testing.TB, faults map[sys.Op][]syscall.Errno, calls int64, play func(f *Fault)) {
	t.Helper()
	for op, errnos := range faults {
		hits := 0
		for _, errno := range errnos {
			for n := range calls {
				f := &Fault{Op: op, N: n + 1, Errno: errno}
				if play(f); f.Hit() {
					hits++
				}
			}
		}
		if hits == 0 {
			t.Errorf("no %s was made to fail: is it not needed any more?", op)
		}
	}
}
