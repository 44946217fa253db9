package bench

import "fmt"

// limits are the limits that the system sets for a process. 0 means unknown.
type limits struct {
	files int // open files per process, the hard limit: Go programs raise the soft one to it
	ports int // local ports that a client may connect from
}

// spareFiles is how many descriptors a process of the benchmark needs in addition to its
// connections. They are for standard streams, pipes, the pollers of the runtime and the engine,
// listening sockets (one per loop), and files being served.
const spareFiles = 128

// allow returns a one-line reason why sc can't run within the limits, or nil.
func (l limits) allow(sc Scenario) error {
	n := sc.conns()
	files := n + spareFiles
	if sc.backend != nil && sc.spec.CallIdle == 0 {
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
