//go:build !linux

package load

import "time"

// processCPU is only implemented on Linux; the harness doesn't run elsewhere.
func processCPU() time.Duration { return 0 }

// sharpenSleep does nothing: only the runtime's sleep is available.
func sharpenSleep() {}

// sleep blocks the calling goroutine for d.
func sleep(d time.Duration) { time.Sleep(d) }
