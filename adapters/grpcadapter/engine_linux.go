//go:build !percore_net

package grpcadapter

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connsAreNets says whether percore's connections wrap package net's. For those grpc-go does by
// itself what serveByGRPC does for percore's.
const connsAreNets = false

// setUserTimeout sets how long data may remain unacknowledged, in whole milliseconds (tcp(7),
// TCP_USER_TIMEOUT). It sets it on a connection, or on a listener's sockets, from which accepted
// connections inherit it.
func setUserTimeout(c syscall.Conn, d time.Duration) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d/time.Millisecond))
	})
	if err == nil {
		err = os.NewSyscallError("setsockopt", failure)
	}
	return err
}
