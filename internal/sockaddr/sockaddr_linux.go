package sockaddr

import (
	"net"
	"net/netip"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
)

// Addr is an IP address and a port without pointers: 24 bytes, where a *net.TCPAddr takes more than
// 100. The zero Addr is an unknown address, or one of another family.
type Addr struct {
	ip     [16]byte // IPv4: the first 4
	scope  uint32   // IPv6 zone, as an interface's index
	port   uint16
	family uint16 // AF_UNSPEC (0) if the address is unknown
}

// Of returns the address that a system call wrote to sa.
func Of(sa *unix.RawSockaddrAny) Addr {
	switch sa.Addr.Family {
	case unix.AF_INET:
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		a := Addr{port: ntohs(in.Port), family: unix.AF_INET}
		copy(a.ip[:], in.Addr[:])
		return a
	case unix.AF_INET6:
		in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return Addr{ip: in.Addr, scope: in.Scope_id, port: ntohs(in.Port), family: unix.AF_INET6}
	}
	return Addr{}
}

// From returns a as an Addr. A zone is lost.
func From(a netip.AddrPort) Addr {
	switch addr := a.Addr(); {
	case addr.Is4():
		r := Addr{port: a.Port(), family: unix.AF_INET}
		ip := addr.As4()
		copy(r.ip[:], ip[:])
		return r
	case addr.Is6():
		return Addr{ip: addr.As16(), port: a.Port(), family: unix.AF_INET6}
	}
	return Addr{}
}

// ntohs converts a port from network order to the host's order.
func ntohs(port uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&port))
	return uint16(b[0])<<8 | uint16(b[1])
}

// IsKnown reports whether a is an address.
func (a *Addr) IsKnown() bool { return a.family != unix.AF_UNSPEC }

// NetAddr returns the address as package net presents it: with 4 bytes of IP for AF_INET and 16 for
// AF_INET6, also if it is an IPv4 address. It returns nil if the address is unknown.
func (a *Addr) NetAddr() net.Addr {
	switch a.family {
	case unix.AF_INET:
		return &net.TCPAddr{IP: append(net.IP(nil), a.ip[:4]...), Port: int(a.port)}
	case unix.AF_INET6:
		return &net.TCPAddr{IP: append(net.IP(nil), a.ip[:]...), Port: int(a.port), Zone: zoneName(a.scope)}
	}
	return nil
}

// AddrPort returns the address as a value, which is not valid if the address is unknown.
func (a *Addr) AddrPort() netip.AddrPort {
	switch a.family {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(a.ip[:4])), a.port)
	case unix.AF_INET6:
		ip := netip.AddrFrom16(a.ip).Unmap()
		return netip.AddrPortFrom(ip.WithZone(zoneName(a.scope)), a.port)
	}
	return netip.AddrPort{}
}

// zoneName returns the name of the interface with the index scope, or the index itself if there is no
// such interface. For 0 it returns "".
func zoneName(scope uint32) string {
	if scope == 0 {
		return ""
	}
	if ifi, err := net.InterfaceByIndex(int(scope)); err == nil {
		return ifi.Name
	}
	return strconv.Itoa(int(scope))
}

// NetAddr returns the address that a system call wrote to sa, which was zeroed before, as package net
// presents it, or nil if it is unknown.
func NetAddr(sa *unix.RawSockaddrAny) net.Addr {
	if sa.Addr.Family == unix.AF_UNIX {
		return unixAddr(sa)
	}
	a := Of(sa)
	return a.NetAddr()
}

// unixAddr returns the address of a unix socket in sa, which was zeroed before. Package net writes a
// leading NUL, of an abstract name, as "@", takes an unnamed socket for an abstract one with an empty
// name, and ends the name at the first NUL after that; so do we.
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

// Local returns the address that fd is bound to, or nil if the kernel doesn't tell it.
func Local(fd int) net.Addr {
	var sa unix.RawSockaddrAny
	if _, errno := sys.Getsockname(fd, &sa); errno != 0 {
		return nil
	}
	return NetAddr(&sa)
}
