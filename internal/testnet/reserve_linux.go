package testnet

import (
	"fmt"
	"syscall"
	"testing"
)

// Reserve returns an address that no other program gets until the test ends, unless it asks for just
// that: a socket is bound to it, and doesn't listen. With SO_REUSEADDR the processes of the test can
// (socket(7)).
func Reserve(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("socket: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	if err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	addr, nameErr := syscall.Getsockname(fd)
	if err != nil || nameErr != nil {
		t.Fatalf("binding a socket: %v, %v", err, nameErr)
	}
	return fmt.Sprintf("127.0.0.1:%d", addr.(*syscall.SockaddrInet4).Port)
}
