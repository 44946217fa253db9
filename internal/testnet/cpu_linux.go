package testnet

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that the process has used. ok is false where it can't be told.
func CPUTime() (used time.Duration, ok bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
