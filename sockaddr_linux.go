//go:build !percore_net

package percore

import (
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// rawAddr is an address as the kernel gives it, without pointers: 24 bytes for
// where a *net.TCPAddr takes over 100, which is only made when a caller asks
// for it. family is 0 (AF_UNSPEC) when nothing is known.
type rawAddr struct {
	ip     [16]byte // IPv4: the first 4
	scope  uint32   // IPv6 zone, as an interface's index
	port   uint16
	family uint16
}

// parseAddr takes an IP address out of the memory that a system call filled in.
func parseAddr(sa *unix.RawSockaddrAny) rawAddr {
	switch sa.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		a := rawAddr{port: ntohs(in.Port), family: unix.AF_INET}
		copy(a.ip[:], in.Addr[:])
		return a
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return rawAddr{ip: in.Addr, scope: in.Scope_id, port: ntohs(in.Port), family: unix.AF_INET6}
	}
	return rawAddr{}
}

// rawAddrOf is parseAddr for an address that the kernel does not know. Without an address it returns
// the zero rawAddr.
func rawAddrOf(a netip.AddrPort) rawAddr {
	switch addr := a.Addr(); {
	case addr.Is4():
		r := rawAddr{port: a.Port(), family: unix.AF_INET}
		ip := addr.As4()
		copy(r.ip[:], ip[:])
		return r
	case addr.Is6():
		return rawAddr{ip: addr.As16(), port: a.Port(), family: unix.AF_INET6}
	}
	return rawAddr{}
}

// ntohs puts the two bytes of a port, which are in network order in memory, into
// the host's order.
func ntohs(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// netAddr returns the address as package net presents it: 4 bytes of IP for
// AF_INET, 16 for AF_INET6, mapped ones included.
func (a *rawAddr) netAddr() net.Addr {
	switch a.family {
	case unix.AF_INET:
		return &net.TCPAddr{IP: append(net.IP(nil), a.ip[:4]...), Port: int(a.port)}
	case unix.AF_INET6:
		return &net.TCPAddr{IP: append(net.IP(nil), a.ip[:]...), Port: int(a.port), Zone: zoneName(a.scope)}
	}
	return nil
}

// addrPort returns the address as a value. It is not valid if the address is not known.
func (a *rawAddr) addrPort() netip.AddrPort {
	switch a.family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.ip[:4])), a.port)
	case unix.AF_INET6:
		ip := netip.AddrFrom16(a.ip).Unmap()
		return netip.AddrPortFrom(ip.WithZone(zoneName(a.scope)), a.port)
	}
	return netip.AddrPort{}
}

// zoneName is the name of the interface with the index scope, or the index
// itself if there is none; of 0 it is empty.
func zoneName(scope uint32) string {
	if scope == 0 {
		return ""
	}
	if ifi, err := net.InterfaceByIndex(int(scope)); err == nil {
		return ifi.Name
	}
	return strconv.Itoa(int(scope))
}

// unixAddr takes the address of a unix socket out of the memory that a system call filled
// into a zeroed sa. Package net writes a leading NUL, of an abstract name, as "@", takes
// an unnamed socket for an abstract one with an empty name, and ends the name at the
// first NUL after that; so do we.
func unixAddr(sa *unix.RawSockaddrAny) net.Addr {
	path := (*unix.RawSockaddrUnix)(unsafe.Pointer(sa)).Path
	name := make([]byte, 0, len(path))
	for i, c := range path {
		if c == 0 && i > 0 {
			break
		}
		if c == 0 {
			c = '@'
		}
		name = append(name, byte(c))
	}
	return &net.UnixAddr{Name: string(name), Net: "unix"}
}

// localAddrOf asks for the address that fd is bound to; nil if it can't be had.
func localAddrOf(fd int) net.Addr {
	var sa unix.RawSockaddrAny
	if _, errno := sys.Getsockname(fd, &sa); errno != 0 {
		return nil
	}
	if sa.Addr.Family == unix.AF_UNIX {
		return unixAddr(&sa)
	}
	a := parseAddr(&sa)
	return a.netAddr()
}
