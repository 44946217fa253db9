package percore

import (
	"net"
	"net/netip"
)

// addrPortOf returns a TCP address as a value: the one that prints as a does.
func addrPortOf(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := t.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}
