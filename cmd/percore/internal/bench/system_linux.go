package bench

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// limits are what the system allows a process. 0 means unknown.
type limits struct {
	files int // open files per process, the hard limit: Go programs raise the soft one to it
	ports int // local ports that a client may connect from
}

// spareFiles is how many descriptors a process of the benchmark needs in addition to its
// connections. They are for standard streams, pipes, the pollers of the runtime and the engine,
// listening sockets (one per loop), and files being served.
const spareFiles = 128

// allow returns a one-line reason why s can't run within the limits, or nil.
func (l limits) allow(s *scenario.Scenario) error {
	n := s.MostConns()
	files := n + spareFiles
	if s.Backend != nil {
		files += n // the proxy's other side
	}
	if l.files > 0 && files > l.files {
		return fmt.Errorf("%d connections need %d open files per process, the limit is %d: raise it (ulimit -Hn) or take fewer (-idle)", n, files, l.files)
	}
	if l.ports > 0 && n > l.ports {
		return fmt.Errorf("%d connections need as many local ports, there are %d: widen net.ipv4.ip_local_port_range or take fewer (-idle)", n, l.ports)
	}
	return nil
}

// systemLimits reads the limits of this process, which its children inherit.
func systemLimits() limits {
	var l limits
	var rl unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rl); err == nil && rl.Max < 1<<31 {
		l.files = int(rl.Max)
	}
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var first, last int
		if _, err := fmt.Sscan(string(b), &first, &last); err == nil {
			l.ports = last - first + 1
		}
	}
	return l
}

// cpuClock is a reading of the machine's own CPU accounting.
type cpuClock struct {
	at   time.Time
	busy time.Duration
}

// machineCPU reads how busy all processors have been since boot. It returns a zero clock if that can't
// be read.
func machineCPU() cpuClock {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return cpuClock{}
	}
	stat, err := proc.Stat()
	if err != nil {
		return cpuClock{}
	}
	all := stat.CPUTotal // its times of guests are parts of User and Nice (proc(5))
	busy := all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal
	return cpuClock{time.Now(), time.Duration(busy * float64(time.Second))}
}

// noteOthers adds to m what share of the machine other processes have used since the clock was read.
func (began cpuClock) noteOthers(m map[string]float64, ours time.Duration) {
	now := machineCPU()
	if now.at.IsZero() || began.at.IsZero() {
		return
	}
	capacity := now.at.Sub(began.at) * time.Duration(runtime.NumCPU())
	m[MetricOther] = 100 * max(0, float64(now.busy-began.busy-ours)) / float64(capacity)
}
