package target

import (
	"fmt"
	"runtime"
	"time"
)

// spin burns CPU time: turns of a xorshift generator, whose steps depend on each other, so that they
// take the same number of cycles however much the processor does in parallel. It returns the
// generator's state, and is not inlined, so that the compiler can't drop a result without a reader.
//
//go:noinline
func spin(turns int64) uint64 {
	x := uint64(88172645463325252)
	for range turns {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	return x
}

// compute burns CPU time forever.
func compute() {
	for {
		runtime.KeepAlive(spin(1 << 20))
	}
}

// CalibrateSpin finds how many turns of spin take d of CPU time on this machine. It takes the fastest
// of several trials, measured in the CPU time of the thread. Other work on the machine can only make a
// trial slower.
func CalibrateSpin(d time.Duration) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const trial = 2_000_000 // a few milliseconds
	best := time.Duration(0)
	for range 15 {
		before, err := threadCPU()
		if err != nil {
			return 0, fmt.Errorf("calibrate: %w", err)
		}
		runtime.KeepAlive(spin(trial))
		after, err := threadCPU()
		if err != nil {
			return 0, fmt.Errorf("calibrate: %w", err)
		}
		if took := after - before; took > 0 && (best == 0 || took < best) {
			best = took
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("calibrate: %d turns took no measurable time", trial)
	}
	return max(1, int64(d)*trial/int64(best)), nil
}
