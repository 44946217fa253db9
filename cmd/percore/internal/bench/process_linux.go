package bench

import (
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

type cpuSet = unix.CPUSet

// processorCount returns how many processors this process may use.
func processorCount() int {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return runtime.NumCPU()
	}
	return all.Count()
}

// giveProcessors gives the first n processors to the server and the rest to the load, or all if there is
// no rest. Threads of a core stay together if their numbers are adjacent.
func giveProcessors(n int) (server, load *cpuSet, err error) {
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

// start starts the process on the given processors, or on all if that is nil, with counters if that is
// wanted. It does so in a thread that has nothing else to do until the process has ended: a child
// inherits the processors that its thread may use (sched_setaffinity(2)), which a Go program uses as its
// GOMAXPROCS, and is counted with it.
func (p *process) start(on *cpuSet, count bool, orphan syscall.Signal) error {
	// The kernel sends orphan to the process when the thread that started it ends (prctl(2),
	// PR_SET_PDEATHSIG). The process gets its own group so that Ctrl-C reaches only the harness, which
	// then ends its children in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: orphan, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if count {
			p.counters = openCounters()
			defer p.counters.close()
		}
		var err error
		if on != nil {
			err = unix.SchedSetaffinity(0, on)
		}
		if err == nil {
			err = p.cmd.Start()
		}
		if started <- err; err == nil {
			p.waitErr = p.cmd.Wait()
			close(p.exited)
		}
	}()
	return <-started
}
