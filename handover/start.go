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

// successorCommand returns a command that starts the program which is now at the path of this one, with
// this process's arguments, input and output. Symbolic links are followed again: if a link such as
// current moves from release to release, the successor is of the release that it points to now.
func successorCommand() (*exec.Cmd, error) {
	exe, err := executable()
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: exe, Args: append([]string{exe}, os.Args[1:]...),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}, nil
}

// start starts cmd as the successor, and returns a socket for give. cmd inherits the other end, which
// inherited returns there. start adds to cmd's ExtraFiles and Env. The caller calls cmd.Wait, as usual.
func start(cmd *exec.Cmd) (*net.UnixConn, error) {
	c, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd.ExtraFiles = append(cmd.ExtraFiles, theirs)
	fd := 2 + len(cmd.ExtraFiles) // file i is descriptor 3+i
	cmd.Env = append(cmd.Environ(), variable+"="+strconv.Itoa(fd))
	if err := cmd.Start(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// inherited returns the socket for take, or nil if no predecessor has started this process. It unsets
// the environment variable PERCORE_HANDOVER, so that processes started by this one don't mistake the
// socket for their own.
func inherited() (*net.UnixConn, error) {
	value, ok := os.LookupEnv(variable)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(variable)
	if !isSupported() {
		return nil, errUnsupported
	}
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("handover: %s=%q in the environment is no descriptor", variable, value)
	}
	c, err := inherit(fd, os.Geteuid())
	if err != nil {
		return nil, fmt.Errorf("handover: %s=%q in the environment: %w", variable, value, err)
	}
	return c, nil
}
