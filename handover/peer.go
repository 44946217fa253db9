package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// Peer is the process at the other end of a unix socket: the one that connected, or listened, or made
// the pair of sockets (SO_PEERCRED in unix(7)).
type Peer struct {
	PID int // 0: it is in a pid namespace that this process can't see into
	UID int // its effective user; -1: not known
}

// CheckPeer returns the process at the other end of c. It fails unless this process may exchange
// sockets with it. [Give] and [Take] check this too; CheckPeer is for programs that log their
// peers, or refuse some of them.
//
// The processes must have the same effective user. If the socket has a name, so that others can
// connect, they must also be in the same mount and pid namespaces: a process in a container counts
// as one on another machine, whatever its user. If the kernel doesn't say (there is no /proc; or
// the peer's program has file capabilities, so that others may not look at it, see proc(5)) the
// peer is refused. The sockets of [Start] have no name.
//
// CheckPeer may be called by several goroutines at the same time, and doesn't block.
func CheckPeer(c *net.UnixConn) (Peer, error) {
	if err := checkArguments("CheckPeer", aSocket(c)); err != nil {
		return Peer{UID: -1}, err
	}
	p, err := checkPeer(c)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		err = fmt.Errorf("handover: %w", err)
	}
	return p, err
}

// checkUser fails unless the other process has this one's user.
func (p Peer) checkUser() error {
	if own := os.Geteuid(); p.UID != own {
		return fmt.Errorf("the process at the other end runs as user %d, and this one as user %d:"+
			" a handover is between processes of the same user", p.UID, own)
	}
	return nil
}
