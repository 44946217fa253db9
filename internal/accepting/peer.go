package accepting

import "net/netip"

// Peer returns the prefix that identifies a client where clients have shares of something: its IPv4
// address, or the 64 bits of its IPv6 address that usually belong to one client. Without an address,
// as on a unix socket, it is the zero Prefix: all such clients have one share together.
func Peer(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap()
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // without the zone
	return p
}
