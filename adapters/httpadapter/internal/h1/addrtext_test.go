package h1

import (
	"fmt"
	"net/netip"
	"testing"
)

// The texts match the addresses, even if addresses share a slot. Most clients of a machine have
// their own slot.
func TestAddrTexts(t *testing.T) {
	var texts addrTexts
	var addrs []netip.AddrPort
	for i := range 3000 {
		for _, format := range []string{"127.0.0.1:%d", "[::1]:%d", "[fe80::1%%eth0]:%d", "[fe80::1%%eth1]:%d"} {
			addrs = append(addrs, netip.MustParseAddrPort(fmt.Sprintf(format, 32768+2*i)))
		}
	}
	for n := range uint64(3) {
		for _, addr := range addrs {
			if got, want := texts.of(addr, n), addr.String(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	places := make(map[uint32]bool)
	const clients = addrTextsLen / 2
	for i := range clients {
		places[addrPlace(netip.MustParseAddrPort(fmt.Sprintf("10.0.0.1:%d", 40000+2*i)))] = true
	}
	if len(places) < clients*3/4 {
		t.Errorf("got %d places for %d addresses", len(places), clients)
	}
}

func TestAddrTextsAllocate(t *testing.T) {
	var texts addrTexts
	addr := netip.MustParseAddrPort("127.0.0.1:40000")
	if n := testing.AllocsPerRun(100, func() { texts.of(addr, 1) }); n != 0 {
		t.Errorf("got %v allocations for an address that is known, want 0", n)
	}
}
