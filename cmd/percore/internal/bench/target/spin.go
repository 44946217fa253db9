package target

import (
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

func compute() {
	for {
		runtime.KeepAlive(spin(1 << 20))
	}
}

// CalibrateSpin finds how many turns of spin take d of CPU time on this machine. It takes the fastest
// of several trials: other work on the machine can only make a trial slower.
func CalibrateSpin(d time.Duration) int64 {
	const trial = 1_000_000 // about a millisecond
	best := time.Hour
	for range 50 {
		began := time.Now()
		runtime.KeepAlive(spin(trial))
		best = min(best, time.Since(began))
	}
	return max(1, int64(d)*trial/int64(max(best, 1)))
}
