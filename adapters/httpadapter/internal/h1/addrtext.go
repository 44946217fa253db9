package h1

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
)

// addrTexts remembers the texts of peers' addresses, for Request.RemoteAddr. Kept with the connection a
// text would take memory while that is idle. So a server has a table of a fixed size, in which each
// address has one place, and may lose it to another.
type addrTexts [addrTextsLen]atomic.Pointer[addrText]

// addrText is an address and its text. It is immutable.
type addrText struct {
	addr netip.AddrPort
	text string
}

const (
	// addrTextsLen is the number of places, a power of two. A table that is full takes some 100 KiB.
	addrTextsLen = 1 << addrTextsBits

	addrTextsBits = 10

	// One in addrTextsStay misses at a place replaces its address. If more connections are in use than
	// there are places, each would otherwise replace another before that comes again.
	addrTextsStay = 8
)

// of returns the text of addr. n is any number that grows with each call.
func (t *addrTexts) of(addr netip.AddrPort, n uint64) string {
	place := &t[addrPlace(addr)]
	known := place.Load()
	if known != nil && known.addr == addr {
		return known.text
	}
	text := addr.String()
	if known == nil || n%addrTextsStay == 0 {
		place.Store(&addrText{addr, text})
	}
	return text
}

// addrPlace returns the place of an address. Clients on one machine differ only in the port, and use
// every second port.
func addrPlace(addr netip.AddrPort) uint32 {
	ip := addr.Addr().As16()
	key := binary.LittleEndian.Uint32(ip[12:]) ^ binary.LittleEndian.Uint32(ip[4:]) ^ uint32(addr.Port())<<8
	return key * 0x9e3779b1 >> (32 - addrTextsBits) // Fibonacci hashing (Knuth, volume 3, section 6.4)
}
