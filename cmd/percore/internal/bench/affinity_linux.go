package bench

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// processors is a set of processors; nil means all that this process may use.
type processors *unix.CPUSet

// processorCount returns how many processors this process may use.
func processorCount() int {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return runtime.NumCPU()
	}
	return all.Count()
}

// splitProcessors gives one half of the processors to the server under test, and the other to the
// rest of the run. Threads of a core stay together if their numbers are adjacent.
func splitProcessors() (server, load processors, err error) {
	n := processorCount()
	if n < 2 {
		return nil, nil, errors.New("can't split the processors: there is only one")
	}
	return giveProcessors(n / 2)
}

// giveProcessors gives the first n processors to the server and the rest to the load. If there is
// no rest, the load may use all processors.
func giveProcessors(n int) (server, load processors, err error) {
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

// startOn starts cmd on the given processors. A child inherits the processors that the thread that
// starts it may use (sched_setaffinity(2)). A Go program uses that number as its GOMAXPROCS.
func startOn(on processors, cmd *exec.Cmd) error {
	if on == nil {
		return cmd.Start()
	}
	runtime.LockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("sched_getaffinity: %w", err)
	}
	err := unix.SchedSetaffinity(0, on)
	if err == nil {
		err = cmd.Start()
	}
	if back := unix.SchedSetaffinity(0, &before); back != nil && err == nil {
		// The thread stays locked, so that nothing else runs on it.
		return errors.Join(fmt.Errorf("sched_setaffinity: %w", back), cmd.Process.Kill(), cmd.Wait())
	}
	runtime.UnlockOSThread()
	return err
}
