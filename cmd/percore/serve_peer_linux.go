//go:build !percore_net

package main

import (
	"net"
	"syscall"
)

// peer is the process at the other end of a unix socket, when it connected.
type peer struct{ pid, uid int }

// peerOf returns the process at the other end of c: SO_PEERCRED in unix(7). Without knowledge it is
// the process 0, which there is none of, of the user -1.
func peerOf(c *net.UnixConn) peer {
	unknown := peer{uid: -1}
	rc, err := c.SyscallConn()
	if err != nil {
		return unknown
	}
	var cred *syscall.Ucred
	ctlErr := rc.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if ctlErr != nil || err != nil {
		return unknown
	}
	return peer{int(cred.Pid), int(cred.Uid)}
}
