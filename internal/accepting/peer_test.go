package accepting

import (
	"net/netip"
	"testing"
)

func TestPeer(t *testing.T) {
	for _, tt := range []struct{ addr, want string }{
		{"192.0.2.1", "192.0.2.1/32"},
		{"::ffff:192.0.2.1", "192.0.2.1/32"},
		{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
		{"fe80::1:2%eth0", "fe80::/64"},
	} {
		if got := Peer(netip.MustParseAddr(tt.addr)); got != netip.MustParsePrefix(tt.want) {
			t.Errorf("%s: got %v, want %s", tt.addr, got, tt.want)
		}
	}
	if got := Peer(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("no address: got %v", got)
	}
}
