package sys

import (
	"syscall"

	"github.com/percore/percore/internal/race"
)

// The race detector must see a write to a connection happen before the read of its bytes, whichever
// package makes the two calls: a program that hands work over through a socket is properly
// synchronized. Package syscall's Write and Read report that through a variable of their own. The
// calls of this package use the same variable, with a Write and a Read of no bytes, so the other
// end may belong to package net. Package unix of golang.org/x/sys has another variable.

// raceRelease makes everything so far happen before every later raceAcquire. Call it before the
// call that passes bytes to the kernel.
func raceRelease() {
	if race.Enabled {
		_, _ = syscall.Write(-1, nil) // fails (EBADF), once the detector knows
	}
}

// raceAcquire is the counterpart of raceRelease. Call it after the call that got bytes, or the end
// of the stream, from fd. The detector learns of it only if a read of no bytes succeeds, so fd must
// be open for reading. On a socket or a pipe the read then succeeds at once, and consumes neither
// data nor a pending error.
func raceAcquire(fd int) {
	if race.Enabled {
		_, _ = syscall.Read(fd, nil)
	}
}
