package sockaddr

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// TestLocal compares the addresses of listening sockets with those that package net finds.
func TestLocal(t *testing.T) {
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			ln := testnet.Listen(t, net.Listen, kind)
			raw, err := ln.(syscall.Conn).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var got net.Addr
			if err := raw.Control(func(fd uintptr) { got = Local(int(fd)) }); err != nil {
				t.Fatal(err)
			}
			if want := ln.Addr(); got.String() != want.String() || got.Network() != want.Network() {
				t.Errorf("got %s %v, want %s %v", got.Network(), got, want.Network(), want)
			}
			if _, isTCP := got.(*net.TCPAddr); isTCP != kind.IsTCP() {
				t.Errorf("got a %T", got)
			}
		})
	}
	if got := Local(-1); got != nil {
		t.Errorf("of no socket: got %v, want nil", got)
	}
}

// TestFrom converts addresses to the form without pointers and back.
func TestFrom(t *testing.T) {
	for _, want := range []string{"192.0.2.1:12345", "[2001:db8::1]:443", "0.0.0.0:0"} {
		a := From(netip.MustParseAddrPort(want))
		if got := a.AddrPort().String(); got != want || !a.IsKnown() {
			t.Errorf("AddrPort: got %s, want %s", got, want)
		}
		if got := AddrPort(a.NetAddr()).String(); got != want {
			t.Errorf("NetAddr: got %s, want %s", got, want)
		}
	}
	if a := From(netip.AddrPort{}); a.IsKnown() || a.AddrPort().IsValid() || a.NetAddr() != nil {
		t.Errorf("the zero AddrPort: got %v", a)
	}
	if got := AddrPort(&net.UnixAddr{Name: "/s"}); got.IsValid() {
		t.Errorf("a unix address: got %v", got)
	}
	mapped := &net.TCPAddr{IP: net.ParseIP("::ffff:192.0.2.1"), Port: 1}
	if got := AddrPort(mapped).String(); got != mapped.String() {
		t.Errorf("an IPv4 address in 16 bytes: got %s, want %s", got, mapped)
	}
}
