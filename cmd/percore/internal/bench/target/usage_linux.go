package target

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// usage takes a snapshot of this process. It uses getrusage(2) and not /proc/self/stat, because
// getrusage counts in microseconds (with the scheduler's clock), not in ticks of 10 ms.
func usage() (u scenario.Usage, err error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return u, fmt.Errorf("getrusage: %w", err)
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return scenario.Usage{
		User: time.Duration(ru.Utime.Nano()), System: time.Duration(ru.Stime.Nano()),
		Switches: int64(ru.Nvcsw) + int64(ru.Nivcsw),
		Mallocs:  ms.Mallocs, AllocBytes: ms.TotalAlloc,
	}, nil
}

func memory() (m scenario.Memory, err error) {
	// Twice: the contents of a sync.Pool survive the first collection.
	runtime.GC()
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	m.Heap, m.Stack, m.Goroutines = int64(ms.HeapAlloc), int64(ms.StackInuse), int64(runtime.NumGoroutine())
	m.Resident, err = Resident(os.Getpid())
	return m, err
}

// Resident returns how many bytes of a process are in RAM. smaps_rollup walks the page tables; the
// counters behind /proc/self/statm may be off by a batch per processor (proc(5)).
func Resident(pid int) (int64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	maps, err := proc.ProcSMapsRollup()
	return int64(maps.Rss), err
}

// CPU returns the CPU time of a process so far, with that of all its threads. The number of another
// process's clock is in clock_getcpuclockid(3) of every libc, and in the kernel's
// posix-timers_types.h: the pid's complement, then three bits, of which CPUCLOCK_SCHED is 2.
func CPU(pid int) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
