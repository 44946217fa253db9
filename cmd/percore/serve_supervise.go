package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
)

// With -supervise an extra process keeps the pid that others know, and runs the server as its
// child:
//
//	service manager, container        knows the supervising process only
//	percore serve -supervise          forwards signals, reaps, ends after the last server
//	  percore serve                   hands over to its successor, and ends
//	    percore serve                 the successor, which the supervising process inherits
//
// Each server has one end of a socket, and the supervising process has the other. Through it the
// servers report what they report to systemd with sd_notify(3): READY=1, RELOADING=1, MAINPID= of
// the successor, STOPPING=1. The supervising process sees end-of-file when the last server has
// ended. A server sees it when the supervising process has ended.

// supervisorVariable is the environment variable that tells a server the descriptor of its socket.
const supervisorVariable = "PERCORE_SUPERVISOR"

// parentLink is a server's connection to the process that supervises it, or nil.
type parentLink struct{ conn *net.UnixConn }

// inheritParentLink returns the connection that the environment names.
func inheritParentLink() (*parentLink, error) {
	value, ok := os.LookupEnv(supervisorVariable)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(supervisorVariable)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q in the environment is no descriptor", supervisorVariable, value)
	}
	f := os.NewFile(uintptr(fd), "supervisor")
	defer f.Close()
	c, err := net.FileConn(f) // of a copy, close-on-exec
	if err != nil {
		return nil, fmt.Errorf("%s=%q in the environment: %w", supervisorVariable, value, err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%s=%q in the environment is no unix socket", supervisorVariable, value)
	}
	return &parentLink{conn}, nil
}

// send reports the state of the service to the supervising process.
func (s *parentLink) send(message string) error {
	_, err := s.conn.Write([]byte(message))
	return err
}

// succeeded reports that this process has taken over, if its predecessor can't: if that has crashed
// under serve -supervise, this process reports itself to its supervisor.
func (d *demo) succeeded() {
	d.manager.Succeeded()
	if !d.isOrphan || d.link == nil {
		return
	}
	if err := d.link.send(fmt.Sprintf("MAINPID=%d\nREADY=1", os.Getpid())); err != nil {
		d.log.Warn("telling the supervising process failed", "err", err)
	}
}

// errUnsupervised is returned when the supervising process has ended, which ends the server too.
var errUnsupervised = errors.New("the supervising process has ended")

// watch waits until the supervising process ends, and reports that to failed. It stops when ctx
// ends.
func (s *parentLink) watch(ctx context.Context, failed chan<- error) {
	_, _ = s.conn.Read(make([]byte, 1)) // it never writes
	if ctx.Err() == nil {
		failed <- errUnsupervised
	}
}

// passOn lets a successor inherit the connection. The caller closes the file after starting cmd.
func (s *parentLink) passOn(cmd *exec.Cmd) (*os.File, error) {
	f, err := s.conn.File()
	if err == nil {
		passParentLink(cmd, f)
	}
	return f, err
}

// passParentLink lets a command inherit the socket.
func passParentLink(cmd *exec.Cmd, socket *os.File) {
	cmd.ExtraFiles = append(cmd.ExtraFiles, socket)
	fd := 2 + len(cmd.ExtraFiles) // file i is descriptor 3+i
	cmd.Env = append(cmd.Environ(), supervisorVariable+"="+strconv.Itoa(fd))
}
