package testnet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// openFDs returns the target of every open descriptor of the process.
func openFDs() map[int]string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	fds := make(map[int]string, len(entries))
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil {
			continue // the descriptor that ReadDir itself used is already closed
		}
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			fds[fd] = target
		}
	}
	return fds
}

// CountFDs returns how many descriptors the process has open, or 0 where that is unknown.
func CountFDs() int { return len(openFDs()) }

// describeFD says more about a descriptor than its link does: the addresses of
// a socket, the descriptors an epoll instance watches.
func describeFD(fd int) string {
	var b strings.Builder
	if local, err := syscall.Getsockname(fd); err == nil {
		fmt.Fprintf(&b, " local=%s", sockaddrString(local))
	}
	if remote, err := syscall.Getpeername(fd); err == nil {
		fmt.Fprintf(&b, " remote=%s", sockaddrString(remote))
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return b.String()
	}
	for line := range strings.Lines(string(info)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "tfd:" {
			fmt.Fprintf(&b, " watches=%s", fields[1])
		}
	}
	return b.String()
}

func sockaddrString(sa syscall.Sockaddr) string {
	switch sa := sa.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port)).String()
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port)).String()
	case *syscall.SockaddrUnix:
		return strconv.Quote(sa.Name)
	}
	return fmt.Sprintf("%T", sa)
}
