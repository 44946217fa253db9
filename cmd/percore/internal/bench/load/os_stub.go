//go:build !linux

package load

import "time"

// processCPU is only known on Linux; the harness doesn't run elsewhere.
func processCPU() time.Duration { return 0 }

// sharpenSleep does nothing: there is only the runtime's sleep.
func sharpenSleep() {}

// sleep blocks the calling goroutine for d.
func sleep(d time.Duration) { time.Sleep(d) }
