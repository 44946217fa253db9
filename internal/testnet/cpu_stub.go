//go:build !linux

package testnet

import "time"

// CPUTime returns the CPU time that the process has used, or 0 where it can't be told.
func CPUTime() time.Duration { return 0 }
