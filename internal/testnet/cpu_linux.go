package testnet

import (
	"syscall"
	"time"
)

// CPUTime returns the CPU time that the process has used, or 0 where it can't be told.
func CPUTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
