package target

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// usage takes a snapshot of this process. It uses getrusage(2) and not /proc/self/stat, because
// getrusage counts in microseconds (with the scheduler's clock), not in ticks of 10 ms.
func usage() (Usage, error) {
	var ru unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &ru); err != nil {
		return Usage{}, fmt.Errorf("getrusage: %w", err)
	}
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	return Usage{
		User:       time.Duration(ru.Utime.Nano()),
		System:     time.Duration(ru.Stime.Nano()),
		Voluntary:  int64(ru.Nvcsw),
		Preempted:  int64(ru.Nivcsw),
		Mallocs:    ms.Mallocs,
		AllocBytes: ms.TotalAlloc,
		Moves:      migrations(),
	}, nil
}

// migrations returns how often threads of this process were moved to another processor. The kernel
// counts that in /proc/self/task/*/sched (CONFIG_SCHED_DEBUG); without these files the result is 0.
// Threads that have ended are missing, but the Go runtime ends few.
func migrations() (n uint64) {
	files, _ := filepath.Glob("/proc/self/task/*/sched")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for line := range bytes.Lines(b) {
			if name, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "se.nr_migrations" {
				moves, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
				n += moves
			}
		}
	}
	return n
}

// memory measures the lasting memory of this process.
func memory() (Memory, error) {
	// Twice: the contents of a sync.Pool survive the first collection.
	runtime.GC()
	debug.FreeOSMemory()
	var ms runtime.MemStats
	runtime.ReadMemStats(&ms)
	rss, err := Resident("self")
	if err != nil {
		return Memory{}, err
	}
	return Memory{
		Resident:   rss,
		Heap:       int64(ms.HeapAlloc),
		Stack:      int64(ms.StackInuse),
		Goroutines: int64(runtime.NumGoroutine()),
	}, nil
}

// Resident returns how many bytes of a process are in RAM. smaps_rollup walks the page tables; the
// counters behind /proc/self/statm may be off by a batch per processor (proc(5)).
func Resident(pid string) (int64, error) {
	b, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line)
		if len(f) == 3 && string(f[0]) == "Rss:" {
			kb, err := strconv.ParseInt(string(f[1]), 10, 64)
			return kb << 10, err
		}
	}
	return 0, fmt.Errorf("/proc/%s/smaps_rollup has no Rss", pid)
}

// threadCPU returns the CPU time of the calling thread. It can't use getrusage with RUSAGE_THREAD.
// For the running thread that value is as old as the last tick of the scheduler (seen on Linux
// 6.18). Reading this clock brings it up to date.
func threadCPU() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
