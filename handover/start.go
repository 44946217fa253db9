package handover

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
)

// variable is the environment variable that tells a process the descriptor of its socket.
const variable = "PERCORE_HANDOVER"

// Start starts cmd as the successor: it inherits a socket, which [Inherited] returns there. The
// result is for Give. Start adds to cmd's ExtraFiles and Env. The caller calls cmd.Wait, as usual.
//
// If cmd.Path is empty, it starts the program that is now at the path of this one, with this process's
// arguments. Symbolic links are followed again: if a link such as current moves from release to
// release, the successor is of the release that it points to now.
func Start(cmd *exec.Cmd) (*net.UnixConn, error) {
	if err := checkArguments("Start", argument{"cmd", cmd, "new(exec.Cmd), or the program to start"}); err != nil {
		return nil, err
	}
	if cmd.Path == "" {
		exe, err := executable()
		if err != nil {
			return nil, takeError("starting the successor", err)
		}
		cmd.Path, cmd.Args = exe, append([]string{exe}, os.Args[1:]...)
	}
	c, theirs, err := socketpair()
	if err != nil {
		return nil, takeError("starting the successor", err)
	}
	defer theirs.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	fd := 2 + len(cmd.ExtraFiles) // file i is descriptor 3+i
	cmd.Env = append(cmd.Environ(), variable+"="+strconv.Itoa(fd))
	if err := cmd.Start(); err != nil {
		c.Close()
		return nil, fmt.Errorf("handover: starting the successor: %w", err)
	}
	return c, nil
}

// Inherited returns the socket for Take, or nil if this process wasn't started with [Start]. It
// unsets the environment variable PERCORE_HANDOVER, so that processes started by this one don't
// mistake the socket for their own. Call it once, early.
func Inherited() (*net.UnixConn, error) {
	value, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(variable)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("handover: %s=%q in the environment is no descriptor", variable, value)
	}
	c, err := inherit(fd)
	if err != nil {
		return nil, fmt.Errorf("handover: %s=%q in the environment: %w", variable, value, err)
	}
	return c, nil
}

// turnDown tells the process at the other end of c why this one can't take part in the handover, and
// closes c. It doesn't wait for that process.
func turnDown(c *net.UnixConn, reason error) error {
	w, err := newWire(c)
	if err != nil {
		return takeError("refusing", err)
	}
	w.refuse(reason)
	w.close()
	return nil
}
