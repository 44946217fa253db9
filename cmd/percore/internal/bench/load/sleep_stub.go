//go:build !linux

package load

import "time"

func sharpenSleep() {}

func sleep(d time.Duration) { time.Sleep(d) }
