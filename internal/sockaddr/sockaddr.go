// Package sockaddr converts the addresses of sockets: from the kernel's form to package net's, and to
// values.
package sockaddr

import (
	"net"
	"net/netip"
)

// AddrPort returns a TCP address as a value, which prints as a does: an IPv4 address even if a holds
// it in 16 bytes. Of any other address it returns the zero AddrPort.
func AddrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := t.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
