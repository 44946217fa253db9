package sys

import (
	"syscall"

	"github.com/percore/percore/internal/race"
)

// The race detector must see a write to a connection happen before the read of its
// bytes, whichever package makes the two calls: a program that hands work over
// through a socket is properly synchronized. Package syscall's Write and Read say so
// through a variable of theirs. The calls of this package say it through the same
// one, by a Write and a Read of no bytes, so that the other end may be package net's.
// Package unix of golang.org/x/sys has another variable.

// raceRelease makes everything up to now happen before every raceAcquire that comes
// later. It goes before the call that hands bytes to the kernel.
func raceRelease() {
	if race.Enabled {
		_, _ = syscall.Write(-1, nil) // fails (EBADF), once the detector knows
	}
}

// raceAcquire is raceRelease's counterpart, for after the call that got bytes, or
// the end of the stream, from fd. A read of no bytes must succeed for the detector
// to know, so fd has to be good for reading. On a socket or a pipe it then succeeds
// at once, and takes neither data nor a pending error away.
func raceAcquire(fd int) {
	if race.Enabled {
		_, _ = syscall.Read(fd, nil)
	}
}
