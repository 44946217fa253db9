//go:build !percore_net

package grpcadapter

import (
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
)

// connsAreNets says whether percore's connections are package net's within, for
// which grpc-go does the work of this package itself.
const connsAreNets = false

// Listen is [WrapListener] of percore.Listen: it takes the networks and addresses
// that net.Listen takes and fails with net.Listen's errors, and its connections
// are *[Conn].
func Listen(network, address string) (net.Listener, error) {
	l, err := percore.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return WrapListener(l), nil
}

// setUserTimeout sets for how long data may remain unacknowledged, in whole
// milliseconds (tcp(7), TCP_USER_TIMEOUT): on a connection, or on a listener's sockets,
// from which the kernel hands it on to accepted connections.
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
