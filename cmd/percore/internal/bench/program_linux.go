package bench

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

// cpu returns the CPU time of the process so far, with that of all its threads; 0 once it is gone. The
// number of another process's clock is in clock_getcpuclockid(3) of every libc, and in the kernel's
// posix-timers_types.h: the pid's complement, then three bits, of which CPUCLOCK_SCHED is 2.
func (f *foreign) cpu() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(int32(^f.cmd.Process.Pid<<3|2), &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// resident returns how many bytes of the process are in RAM; 0 once it is gone.
func (f *foreign) resident() int64 {
	n, _ := target.Resident(strconv.Itoa(f.cmd.Process.Pid))
	return n
}
