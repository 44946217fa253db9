package bench

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// processorCount returns how many processors this process may use.
func processorCount() int {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return runtime.NumCPU()
	}
	return all.Count()
}

// giveProcessors gives the first n processors to the server and the rest to the load. If there is
// no rest, the load may use all processors. Threads of a core stay together if their numbers are
// adjacent.
func giveProcessors(n int) (server, load *unix.CPUSet, err error) {
	var all, first, rest unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	for cpu, given := 0, 0; given < all.Count(); cpu++ {
		switch {
		case !all.IsSet(cpu):
			continue
		case given < n:
			first.Set(cpu)
		default:
			rest.Set(cpu)
		}
		given++
	}
	if rest.Count() == 0 {
		return &first, nil, nil
	}
	return &first, &rest, nil
}
