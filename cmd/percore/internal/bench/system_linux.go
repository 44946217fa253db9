package bench

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

// spareFiles is how many descriptors a process of the benchmark needs in addition to its
// connections. They are for standard streams, pipes, the pollers of the runtime and the engine,
// listening sockets (one per loop), and files being served.
const spareFiles = 128

// allow returns a one-line reason why the limits of this process, which its children inherit, don't let
// s run. It returns nil if they do, or are unknown.
func allow(s *scenario.Scenario) error {
	n := s.MostConns()
	files := n + spareFiles
	if s.Backend != nil {
		files += n // the proxy's other side
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err == nil && uint64(files) > limit.Max { // Go raises its own to Max
		return fmt.Errorf("%d connections need %d open files per process, the limit is %d: raise it (ulimit -Hn) or take fewer (-idle)", n, files, limit.Max)
	}
	var first, last int
	ports, _ := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if _, err := fmt.Sscan(string(ports), &first, &last); err == nil && n > last-first+1 {
		return fmt.Errorf("%d connections need as many local ports, there are %d: widen net.ipv4.ip_local_port_range or take fewer (-idle)", n, last-first+1)
	}
	return nil
}

// machineCPU returns how busy all processors have been since boot, or 0 if that can't be read.
func machineCPU() time.Duration {
	proc, err := procfs.NewDefaultFS()
	if err != nil {
		return 0
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0
	}
	all := stat.CPUTotal // its times of guests are parts of User and Nice (proc(5))
	return time.Duration((all.User + all.Nice + all.System + all.IRQ + all.SoftIRQ + all.Steal) * float64(time.Second))
}

// host describes this machine.
func host() Host {
	h := Host{
		OS: runtime.GOOS, Arch: runtime.GOARCH, Kernel: "Linux", CPUs: runtime.NumCPU(),
		Go: runtime.Version(), Version: "(unknown)",
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil { // "Linux 6.18.4 x86_64"
		h.Kernel = fmt.Sprintf("%s %s %s", unix.ByteSliceToString(u.Sysname[:]), unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:]))
	}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if all, err := proc.CPUInfo(); err == nil && len(all) > 0 {
			h.CPU = all[0].ModelName // empty on ARM
		}
		if m, err := proc.Meminfo(); err == nil && m.MemTotalBytes != nil {
			h.Memory = int64(*m.MemTotalBytes)
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		h.Version = info.Main.Version
	}
	return h
}
