package testnet

import (
	"net"
	"syscall"
	"testing"
)

// reserve binds a socket to a free port of ip, and doesn't listen. With SO_REUSEADDR the processes of
// the test can listen there (socket(7)).
func reserve(t testing.TB, ip net.IP) *net.TCPAddr {
	t.Helper()
	family := syscall.AF_INET6
	var free syscall.Sockaddr = &syscall.SockaddrInet6{Addr: [16]byte(ip.To16())}
	if ip.To4() != nil {
		family, free = syscall.AF_INET, &syscall.SockaddrInet4{Addr: [4]byte(ip.To4())}
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("socket: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, free)
	}
	bound, nameErr := syscall.Getsockname(fd)
	if err != nil || nameErr != nil {
		t.Fatalf("binding a socket: %v, %v", err, nameErr)
	}
	if a, ok := bound.(*syscall.SockaddrInet4); ok {
		return &net.TCPAddr{IP: ip, Port: a.Port}
	}
	return &net.TCPAddr{IP: ip, Port: bound.(*syscall.SockaddrInet6).Port}
}
