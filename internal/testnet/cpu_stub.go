//go:build !linux

package testnet

import "time"

// CPUTime returns the CPU time that the process has used. ok is false where it can't be told.
func CPUTime() (used time.Duration, ok bool) { return 0, false }
