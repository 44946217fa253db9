package systemd

import (
	"os"
	"strconv"
	"strings"
)

// firstSocket is the descriptor of the first socket (SD_LISTEN_FDS_START).
const firstSocket = 3

// Sockets returns the sockets that the service manager has opened for this process, and removes them
// from the environment, so that another call returns none. The name of each file is the one of
// FileDescriptorName= in systemd.socket(5), as a rule that of the unit, or empty. The caller owns the
// files, and closes them when it has its listeners. The processes that this one starts don't inherit
// them, but with the build tag percore_net they do until then. Successors get their listeners in a
// handover.
func Sockets() (files []*os.File) {
	pid, count, names := os.Getenv("LISTEN_PID"), os.Getenv("LISTEN_FDS"), os.Getenv("LISTEN_FDNAMES")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
		os.Unsetenv(name)
	}
	n, err := strconv.Atoi(count)
	if p, pidErr := strconv.Atoi(pid); err != nil || pidErr != nil || p != os.Getpid() {
		return nil
	}
	named := strings.Split(names, ":")
	for i := range n {
		name := ""
		if i < len(named) {
			name = named[i]
		}
		closeOnExec(firstSocket + i)
		files = append(files, os.NewFile(uintptr(firstSocket+i), name))
	}
	return files
}
