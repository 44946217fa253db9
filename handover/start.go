package handover

import (
	"errors"
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
func Start(cmd *exec.Cmd) (*net.UnixConn, error) {
	if err := checkArguments("Start", argument{"cmd", cmd, "the program to start: see Executable"}); err != nil {
		return nil, err
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

// Refuse tells the process at the other end of c, which calls Take, why this one doesn't hand over,
// and closes c. It doesn't wait for that process. It fails if Give would fail before it sends
// anything.
func Refuse(c *net.UnixConn, reason error) error {
	if err := checkArguments("Refuse", aSocket(c), argument{"reason", reason, "an error that says why"}); err != nil {
		return errors.Join(err, closeIfAny(c))
	}
	w, err := newWire(c)
	if err != nil {
		return takeError("refusing", err)
	}
	w.refuse(reason)
	w.close()
	return nil
}
