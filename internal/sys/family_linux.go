package sys

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Family is the properties that a connection has from the listening socket that it came in at.
type Family struct{ domain, protocol int }

// FamilyOf returns the family of a listening socket.
func FamilyOf(fd int) (f Family, err error) {
	domain, errno := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if errno != 0 {
		return f, errors.New("a descriptor is no socket")
	}
	protocol, errno := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if errno != 0 {
		return f, os.NewSyscallError("getsockopt", errno)
	}
	return Family{domain, protocol}, nil
}

// CheckConn fails unless fd, which code outside has passed in, is a connection as accept4(2) returns it
// from a listening socket of the family. It stores the peer's address. The connection has ended if the
// kernel has forgotten the peer, since the peer has reset it.
func (f Family) CheckConn(fd int, peer *unix.RawSockaddrAny) (ended bool, err error) {
	domain, errno := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if errno != 0 {
		return false, errors.New("a descriptor is no socket")
	}
	if domain != f.domain {
		return false, fmt.Errorf("a socket is of family %d, and its listener of %d", domain, f.domain)
	}
	if typ, _ := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); typ != unix.SOCK_STREAM {
		return false, errors.New("a socket is no stream socket")
	}
	// A connection of a Multipath TCP listener is a TCP one if the peer doesn't know it.
	protocol, _ := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if protocol != f.protocol && (f.protocol != unix.IPPROTO_MPTCP || protocol != unix.IPPROTO_TCP) {
		return false, fmt.Errorf("a socket is of protocol %d, and its listener of %d", protocol, f.protocol)
	}
	if Listens(fd) {
		return false, errors.New("a socket listens, and should be connected")
	}
	switch errno := Getpeername(fd, peer); errno {
	case 0:
		return false, nil
	case unix.ENOTCONN:
		return true, nil
	default:
		return false, os.NewSyscallError("getpeername", errno)
	}
}

// Listens reports whether fd is known to be a socket that listens.
func Listens(fd int) bool {
	listens, errno := GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return errno == 0 && listens != 0
}
