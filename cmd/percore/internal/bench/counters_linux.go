package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// callClasses has the system calls that have a metric of their own.
var callClasses = []struct {
	metric string
	calls  []string // as the kernel's tracepoints name them
}{
	{MetricReads, []string{"read", "readv", "recvfrom", "recvmsg"}},
	{MetricWrites, []string{"write", "writev", "sendto", "sendmsg", "sendfile64", "splice"}},
	{MetricPolls, []string{"epoll_wait", "epoll_pwait", "epoll_pwait2", "epoll_ctl", "ppoll"}},
	{MetricFutexes, []string{"futex"}},
}

// counters count what a process does, with perf_event_open(2): instructions in user space, and system
// calls. They cost both builds of a comparison the same.
type counters struct {
	files     map[string][]*os.File // by metric
	uncounted map[string]error      // metrics that this machine or the user's rights have no counter for
}

// openCounters opens counters for the calling thread and all that descend from it later (inherit).
func openCounters() *counters {
	c := &counters{files: make(map[string][]*os.File), uncounted: make(map[string]error)}
	c.open(MetricInstructions, unix.PerfEventAttr{
		Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_INSTRUCTIONS,
		Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	})
	c.openCalls(MetricCalls, "raw_syscalls/sys_enter")
	for _, class := range callClasses {
		for _, call := range class.calls {
			c.openCalls(class.metric, "syscalls/sys_enter_"+call)
		}
		if c.files[class.metric] == nil && c.uncounted[class.metric] == nil {
			c.uncounted[class.metric] = errors.New("the kernel has no tracepoints of single system calls")
		}
	}
	return c
}

func (c *counters) openCalls(metric, tracepoint string) {
	id, err := os.ReadFile("/sys/kernel/tracing/events/" + tracepoint + "/id")
	if errors.Is(err, os.ErrNotExist) && metric != MetricCalls {
		return // this architecture doesn't have the call
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT}
	if err == nil {
		_, err = fmt.Sscan(string(id), &attr.Config)
	}
	if err != nil {
		c.uncounted[metric] = err
		return
	}
	c.open(metric, attr)
}

func (c *counters) open(metric string, attr unix.PerfEventAttr) {
	attr.Size = uint32(unsafe.Sizeof(attr))
	attr.Bits |= unix.PerfBitInherit
	attr.Read_format = unix.PERF_FORMAT_TOTAL_TIME_ENABLED | unix.PERF_FORMAT_TOTAL_TIME_RUNNING
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		c.uncounted[metric] = fmt.Errorf("perf_event_open: %w", err)
		return
	}
	c.files[metric] = append(c.files[metric], os.NewFile(uintptr(fd), metric))
}

// read returns the counts so far by metric, if there are counters. It leaves out metrics of which some
// call has no counter.
func (c *counters) read() (map[string]float64, error) {
	if c == nil {
		return nil, nil
	}
	m := make(map[string]float64)
	for metric, files := range c.files {
		for _, f := range files {
			var v struct{ Count, Enabled, Running uint64 }
			if err := binary.Read(f, binary.NativeEndian, &v); err != nil {
				return nil, fmt.Errorf("read the counter of %s: %w", metric, err)
			}
			count := float64(v.Count)
			if v.Running > 0 { // it may have shared a register of the processor
				count *= float64(v.Enabled) / float64(v.Running)
			}
			m[metric] += count
		}
	}
	maps.DeleteFunc(m, func(metric string, _ float64) bool { return c.uncounted[metric] != nil })
	return m, nil
}

func (c *counters) close() {
	for _, files := range c.files {
		for _, f := range files {
			f.Close()
		}
	}
}
