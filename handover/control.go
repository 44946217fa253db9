package handover

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// Control is a socket with a name, through which a successor that this process has not started
// finds it: see [Listen]. Its methods are safe for concurrent use.
type Control struct {
	listener *net.UnixListener
	file     *controlFile // nil: the name is abstract
}

// Listen makes a socket at which successors connect with [Dial]. Call [Give] for each connection that
// Accept returns.
//
// name is a path. Its folder is made with mode 0700 if it isn't there. Otherwise it must belong to
// this process's effective user, be closed to all others (mode 0700), and not be a symbolic link.
// An existing socket is replaced at once: a successor takes the name of its predecessor, and a
// process that was killed leaves its name behind. Close removes the file unless it has been
// replaced.
//
// A name that begins with "@" is abstract (unix(7)): all processes of the network namespace can see
// it and connect, and any process can take it first. Give and Take then rely on [CheckPeer] alone.
// Such a name is not replaced: Listen fails with an error that wraps syscall.EADDRINUSE while the
// predecessor has it.
func Listen(name string) (*Control, error) {
	if name == "" {
		return nil, errNoName("Listen")
	}
	c, err := listenControl(name)
	if err != nil {
		return nil, controlError("listening at", name, err)
	}
	return c, nil
}

// Dial connects to a process that has called [Listen], for [Take]. The folder of a path must be as
// Listen requires it, so that no other user can have made the socket. If no process listens there the
// error wraps fs.ErrNotExist or syscall.ECONNREFUSED.
func Dial(name string) (*net.UnixConn, error) {
	if name == "" {
		return nil, errNoName("Dial")
	}
	c, err := dialControl(name)
	if err != nil {
		return nil, controlError("connecting to", name, err)
	}
	return c, nil
}

func errNoName(function string) error {
	return fmt.Errorf("handover: %s: name is empty: pass the path of a socket, or a name that begins with @", function)
}

func controlError(what, name string, err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("handover: %s %s: %w", what, name, err)
}

// isAbstract reports whether the name of a unix socket is abstract, not a path.
func isAbstract(name string) bool { return strings.HasPrefix(name, "@") }

// Accept waits for a successor. It fails with an error that wraps net.ErrClosed after Close.
func (c *Control) Accept() (*net.UnixConn, error) {
	if c == nil || c.listener == nil {
		return nil, errNoControl
	}
	return c.listener.AcceptUnix()
}

// errNoControl is the error of a Control that Listen has not made.
var errNoControl = fmt.Errorf("handover: this Control is not from Listen: call that: %w", net.ErrClosed)

// Close ends Accept, and removes the socket's file unless another process has replaced it.
func (c *Control) Close() error {
	if c == nil || c.listener == nil {
		return errNoControl
	}
	if c.file != nil {
		c.file.remove()
	}
	return c.listener.Close()
}

// checkFolder fails unless a folder is closed to all other users.
func checkFolder(info fs.FileInfo, owner int) error {
	if own := os.Geteuid(); owner != own {
		return fmt.Errorf("its folder belongs to user %d, and this process runs as user %d", owner, own)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("its folder is open to others (mode %#o): make it 0700", mode)
	}
	return nil
}
