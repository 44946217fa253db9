//go:build !percore_net

package grpcadapter

import (
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// connsAreNets says whether percore's connections wrap package net's. If so, grpc-go does by itself
// what serveByGRPC does for percore's.
const connsAreNets = false

// setUserTimeout sets how long data may remain unacknowledged, in whole milliseconds (tcp(7),
// TCP_USER_TIMEOUT). c is a connection, or a listener: accepted connections inherit the option from
// its sockets.
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

// acceptQueue returns how many connections wait to be accepted from a TCP listener, or math.MaxInt64 if
// the kernel doesn't say. TCP_INFO of a listening socket has that number in tcpi_unacked
// (tcp_get_info in Linux's net/ipv4/tcp.c, since 2.6.26).
func acceptQueue(l syscall.Conn) (n int64) {
	raw, err := l.SyscallConn()
	if err != nil {
		return math.MaxInt64
	}
	known := true
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if known = known && err == nil; known {
			n += int64(info.Unacked)
		}
	})
	if err != nil || !known {
		return math.MaxInt64
	}
	return n
}
