package conformance

import (
	"fmt"
	"net"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A sockopt is a socket option that can be read.
type sockopt struct {
	name          string
	level, option int
}

// connOptions are the options of an accepted connection that must equal net's. SO_REUSEPORT is not among
// them: the sockets of several loops need it to share a port, and connections inherit it without effect.
var connOptions = []sockopt{
	{"SO_TYPE", unix.SOL_SOCKET, unix.SO_TYPE},
	{"SO_DOMAIN", unix.SOL_SOCKET, unix.SO_DOMAIN},
	{"SO_PROTOCOL", unix.SOL_SOCKET, unix.SO_PROTOCOL},
	{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR},
	{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
	{"SO_RCVBUF", unix.SOL_SOCKET, unix.SO_RCVBUF},
	{"SO_SNDBUF", unix.SOL_SOCKET, unix.SO_SNDBUF},
	{"SO_OOBINLINE", unix.SOL_SOCKET, unix.SO_OOBINLINE},
	{"SO_BUSY_POLL", unix.SOL_SOCKET, unix.SO_BUSY_POLL},
	{"SO_ZEROCOPY", unix.SOL_SOCKET, unix.SO_ZEROCOPY},
	{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
	{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY},
	{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
	{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
	{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
	{"TCP_USER_TIMEOUT", unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT},
	{"TCP_CORK", unix.IPPROTO_TCP, unix.TCP_CORK},
	{"TCP_QUICKACK", unix.IPPROTO_TCP, unix.TCP_QUICKACK},
	{"TCP_NOTSENT_LOWAT", unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT},
}

// listenerOptions are the same for listeners. TCP_NODELAY and keep-alive are not among them:
// percore sets them once on the listening socket, from which connections inherit them. net sets
// them on every connection.
var listenerOptions = []sockopt{
	{"SO_TYPE", unix.SOL_SOCKET, unix.SO_TYPE},
	{"SO_DOMAIN", unix.SOL_SOCKET, unix.SO_DOMAIN},
	{"SO_PROTOCOL", unix.SOL_SOCKET, unix.SO_PROTOCOL},
	{"SO_ACCEPTCONN", unix.SOL_SOCKET, unix.SO_ACCEPTCONN},
	{"SO_REUSEADDR", unix.SOL_SOCKET, unix.SO_REUSEADDR},
	{"SO_BROADCAST", unix.SOL_SOCKET, unix.SO_BROADCAST},
	{"IPV6_V6ONLY", unix.IPPROTO_IPV6, unix.IPV6_V6ONLY},
	{"TCP_DEFER_ACCEPT", unix.IPPROTO_TCP, unix.TCP_DEFER_ACCEPT},
}

// readOptions reads options and descriptor flags as "name=value".
func readOptions(fd int, options []sockopt) []string {
	var values []string
	for _, o := range options {
		value, err := unix.GetsockoptInt(fd, o.level, o.option)
		if err != nil {
			continue // not for this kind of socket
		}
		values = append(values, fmt.Sprintf("%s=%d", o.name, value))
	}
	if linger, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER); err == nil {
		values = append(values, fmt.Sprintf("SO_LINGER=%d,%d", linger.Onoff, linger.Linger))
	}
	flags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	descriptorFlags, _ := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return append(values,
		fmt.Sprintf("nonblocking=%t", flags&unix.O_NONBLOCK != 0),
		fmt.Sprintf("close-on-exec=%t", descriptorFlags&unix.FD_CLOEXEC != 0))
}

// noteOptions notes the options of the connection's socket: the first time all of them, later only
// the changed ones.
func (a *actor) noteOptions(when string) {
	raw, err := as[syscallConn](a).SyscallConn()
	if err != nil {
		a.stage.Fatalf("SyscallConn: %v", err)
	}
	err = raw.Control(func(fd uintptr) {
		values := readOptions(int(fd), connOptions)
		changed := slices.DeleteFunc(slices.Clone(values), func(v string) bool { return slices.Contains(a.options, v) })
		a.options = values
		a.note("%s: %v", when, changed)
	})
	if err != nil {
		a.stage.Fatalf("Control: %v", err)
	}
}

// noteListenerOptions notes the options of the listening sockets, once if they all agree, because
// percore has one socket per loop and passes each to Control. The backlog is in a field of TCP_INFO
// that means something else for other sockets.
func (s *stage) noteListenerOptions(ln net.Listener) {
	raw, err := ln.(syscallConn).SyscallConn()
	if err != nil {
		s.Fatalf("SyscallConn: %v", err)
	}
	var sockets []string
	err = raw.Control(func(fd uintptr) {
		socket := fmt.Sprint(readOptions(int(fd), listenerOptions))
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			socket += fmt.Sprintf(" backlog %d", info.Sacked)
		}
		sockets = append(sockets, socket)
	})
	s.noteError("Control", err)
	s.note("listener: %s", strings.Join(slices.Compact(sockets), ", but another: "))
}
