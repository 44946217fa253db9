//go:build !percore_net

package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// peer is the process at the other end of a unix socket: the one that connected, or listened, or made
// the pair of sockets (SO_PEERCRED in unix(7)). [Give] and [Take] check that this process may exchange
// sockets with it.
//
// The processes must have the same effective user. If the socket has a name, so that others can
// connect, they must also be in the same mount and pid namespaces: a process in a container counts
// as one on another machine, whatever its user. If the kernel doesn't say (there is no /proc; or
// the peer's program has file capabilities, so that others may not look at it, see proc(5)) the
// peer is refused. The sockets of [Start] have no name.
type peer struct {
	pid int // 0: it is in a pid namespace that this process can't see into
	uid int // its effective user; -1: not known
}

// checkUser fails unless the other process has this one's user.
func (p peer) checkUser() error {
	if own := os.Geteuid(); p.uid != own {
		return fmt.Errorf("the process at the other end runs as user %d, and this one as user %d:"+
			" a handover is between processes of the same user", p.uid, own)
	}
	return nil
}

// peerOf returns the process at the other end. Variable for tests.
var peerOf = func(fd int) (peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return peer{uid: -1}, os.NewSyscallError("getsockopt", err)
	}
	return peer{pid: int(cred.Pid), uid: int(cred.Uid)}, nil
}

func checkPeer(c *net.UnixConn) (p peer, err error) {
	controlErr := control(c, func(fd int) {
		if p, err = peerOf(fd); err != nil {
			return
		}
		if err = p.checkUser(); err == nil && hasName(fd) {
			err = p.checkNamespaces(fd)
		}
	})
	if controlErr != nil {
		return peer{uid: -1}, controlErr
	}
	return p, err
}

// hasName reports whether one end of a socket has a name, so that it may have been reached by
// connect(2). A socket of socketpair(2) has none, and belongs to the process that made it and to
// its children.
func hasName(fd int) bool {
	var own, peer unix.RawSockaddrAny // all 0 but the family if there is none (unix(7))
	_, ownErr := sys.Getsockname(fd, &own)
	if ownErr != 0 || sys.Getpeername(fd, &peer) != 0 {
		return true // it can't be known: the peer has gone
	}
	unnamed := unix.RawSockaddrAny{Addr: unix.RawSockaddr{Family: unix.AF_UNIX}}
	return own != unnamed || peer != unnamed
}

// checkNamespaces fails unless the peer is in this process's mount and pid namespaces.
//
// A pid is reused, so the process with the peer's pid may be another by the time that /proc is
// read. With a pidfd of the peer (SO_PEERPIDFD, Linux 6.5) this is noticed: as long as the peer
// lives its pid is its own. Before Linux 6.5 the pidfd is of the process that has the pid now, and
// a peer that ended before this call is not told from its pid's next owner.
func (p peer) checkNamespaces(socket int) error {
	if p.pid == 0 {
		return errors.New("the process at the other end is in another pid namespace: a handover is between processes of one namespace")
	}
	pidfd, err := p.open(socket)
	if err != nil {
		return p.endedError(err)
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	if self, err := os.Readlink("/proc/self"); err != nil || self != strconv.Itoa(os.Getpid()) {
		return errors.New("/proc is not mounted, or shows another pid namespace: the process at the other end can't be checked")
	}
	for _, kind := range []string{"mnt", "pid"} {
		if err := p.checkNamespace(kind); err != nil {
			return err
		}
	}
	if pidfd >= 0 {
		if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil {
			return p.endedError(os.NewSyscallError("pidfd_send_signal", err))
		}
	}
	return nil
}

// open returns a pidfd of the peer, or -1 if the kernel has none (before Linux 5.3).
func (p peer) open(socket int) (pidfd int, err error) {
	pidfd, err = unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != unix.ENOPROTOOPT {
		return pidfd, os.NewSyscallError("getsockopt", err)
	}
	pidfd, err = unix.PidfdOpen(p.pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM { // or a sandbox refuses the call
		return -1, nil
	}
	return pidfd, os.NewSyscallError("pidfd_open", err)
}

func (p peer) endedError(err error) error {
	return fmt.Errorf("process %d at the other end has ended, or can't be checked: %w", p.pid, err)
}

// checkNamespace fails unless the peer is in this process's namespace of a kind (namespaces(7)).
func (p peer) checkNamespace(kind string) error {
	own, err := os.Stat("/proc/self/ns/" + kind)
	if err != nil {
		return err
	}
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", p.pid, kind))
	if err != nil {
		return fmt.Errorf("the namespaces of process %d at the other end can't be compared with this one's: %w", p.pid, err)
	}
	if !os.SameFile(own, theirs) {
		return fmt.Errorf("process %d at the other end is in another namespace (%s): a handover is not between containers,"+
			" or a container and its host", p.pid, kind)
	}
	return nil
}
