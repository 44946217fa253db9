package handover

import (
	"fmt"
	"os"
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
