//go:build !percore_net

package percore

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/sys"
)

// The sockets of a listener move to a successor as files. All must move: each has a backlog of its
// own, and the kernel resets the connections in it when the socket's last descriptor is closed
// (unless net.ipv4.tcp_migrate_req is 1).

// fileListener makes a listener of copies of the files' sockets; there is at least one.
func (lc *ListenConfig) fileListener(files []*os.File) (*listener, error) {
	sockets, err := lc.netSockets(files)
	if err != nil {
		return nil, err
	}
	defer closeSockets(sockets)
	addr := sockets[0].Addr()
	l, err := lc.fromNet(addr.Network(), sockets[0])
	if err != nil {
		return nil, fileError(files, 0, fileOpError(addr, err))
	}
	for i, nl := range sockets {
		if err := l.addFile(lc, nl, i); err != nil {
			l.close()
			return nil, fileError(files, i, fileOpError(addr, err))
		}
	}
	if err := l.open(); err != nil {
		l.close()
		return nil, fileOpError(addr, err)
	}
	return l, nil
}

// addFile adds the socket of a file, unless it is the first, which is there already, and makes sure that
// connections come from it and that they are like those from the first.
func (l *listener) addFile(lc *ListenConfig, nl net.Listener, index int) error {
	if network := nl.Addr().Network(); network != "tcp" && network != "unix" {
		return errors.New("percore serves stream sockets only; use net.FileListener for " + network)
	}
	if index > 0 {
		if err := l.add(lc, nl); err != nil {
			return err
		}
	}
	socket := l.sockets[index]
	if listens, errno := sys.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); errno == 0 && listens == 0 {
		return syscall.EINVAL // a connection, on which Accept would wait forever
	}
	if l.kindOf(socket) != l.connOptions.kind {
		return errors.New("one is Multipath TCP and the other is not")
	}
	return nil
}

// kindOf returns what reads can rely on, on connections of a listening socket.
func (l *listener) kindOf(socket int) engine.StreamKind {
	proto, _ := sys.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if proto != unix.IPPROTO_TCP {
		return engine.Plain // also of MPTCP, which an inherited socket may be
	}
	if !sys.IsPlainTCP(socket) {
		l.connOptions.altered.Store(true)
	}
	return engine.TCP
}

// files returns copies of the first n sockets, or of all if n < 0. Their descriptors stay non-blocking,
// and Fd doesn't change that: all copies share the flag, and this listener's accept4 must not block.
func (l *listener) files(n int) ([]*os.File, error) {
	if n < 0 {
		n = len(l.sockets)
	}
	files := make([]*os.File, 0, n)
	for i := range n {
		f, err := l.dup(i)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, err
		}
		files = append(files, f)
	}
	if n == len(l.sockets) {
		l.copied.all.Store(true)
	} else {
		l.copied.some.Store(true)
	}
	return files, nil
}

func (l *listener) dup(index int) (*os.File, error) {
	var fd int
	var errno syscall.Errno
	if err := l.control(index, func(s uintptr) { fd, errno = sys.Dup(int(s)) }); err != nil {
		return nil, err
	}
	if errno != 0 {
		return nil, os.NewSyscallError("fcntl", errno)
	}
	return os.NewFile(uintptr(fd), l.network+":"+l.addr.String()+"->"), nil // net's name for it
}

// closeCheck finds out whether another process has taken over the port of a closed listener without
// some of its sockets.
//
// A program that hands over a listener with File, or with a copy made in SyscallConn's Control, as with
// package net, hands over only one of the sockets. Neither method can know what the copy is for. But if
// a socket listens at the address after Close, the port was handed over without the others.
type closeCheck struct {
	name   string // of the address
	count  int    // sockets
	addr   unix.RawSockaddrAny
	length uint32 // of addr
	v6only int
}

// closeCheck is called while the sockets are open. It returns nil if there is nothing to find out.
func (l *listener) closeCheck() *closeCheck {
	if len(l.sockets) < 2 || l.copied.all.Load() || !l.copied.some.Load() {
		return nil
	}
	c := &closeCheck{name: l.addr.String(), count: len(l.sockets)}
	var errno syscall.Errno
	if c.length, errno = sys.Getsockname(l.sockets[0], &c.addr); errno != 0 {
		return nil
	}
	c.v6only, _ = sys.GetsockoptInt(l.sockets[0], unix.IPPROTO_IPV6, unix.IPV6_V6ONLY) // fails on IPv4
	return c
}

// warn is called when the sockets are closed. It reports the loss, if there is one.
func (c *closeCheck) warn() {
	if c == nil || !c.listens() {
		return
	}
	slog.Warn("percore: a listener was closed whose address is still listened on, but not by all of its sockets:"+
		" connections that waited on the others were reset; hand all over, with Listener.Files and FileListeners",
		"address", c.name, "sockets", c.count)
}

// listens reports whether a socket listens at the address. Then, and only then, bind(2) fails with
// EADDRINUSE on a socket with SO_REUSEADDR, which all sockets of the port have: connections are no
// obstacle.
func (c *closeCheck) listens() bool {
	family := int(c.addr.Addr.Family)
	fd, errno := sys.Socket(family)
	if errno != 0 {
		return false
	}
	defer sys.Close(fd)
	if sys.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) != 0 {
		return false
	}
	if family == unix.AF_INET6 && sys.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, c.v6only) != 0 {
		return false
	}
	return sys.Bind(fd, &c.addr, c.length) == syscall.EADDRINUSE
}
