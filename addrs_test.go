package percore

import (
	"net"
	"net/netip"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestRemoteAddrPort(t *testing.T) {
	for _, kind := range testnet.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			server, client := testnet.Pair(t, Listen, kind)
			for _, nc := range []*Conn{server.(*Conn), dialedConn(t, kind)} {
				got := nc.RemoteAddrPort()
				if want := nc.RemoteAddr().String(); kind.IsTCP() && got.String() != want {
					t.Errorf("got %v, want %v", got, want)
				}
				if !kind.IsTCP() && got != (netip.AddrPort{}) {
					t.Errorf("got %v, want the zero AddrPort", got)
				}
			}
			if got := server.(*Conn).RemoteAddrPort(); kind.IsTCP() && got.String() != client.LocalAddr().String() {
				t.Errorf("got %v, want the client's address %v", got, client.LocalAddr())
			}
		})
	}
	t.Run("IPv4 on a socket of IPv6", func(t *testing.T) {
		if !testnet.HasIPv6() {
			t.Skip("this machine has no IPv6 loopback address")
		}
		ln, err := Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		_, port, _ := net.SplitHostPort(ln.Addr().String())
		client, err := net.Dial("tcp4", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if got, want := server.(*Conn).RemoteAddrPort().String(), server.RemoteAddr().String(); got != want {
			t.Errorf("got %v, want %v", got, want)
		}
	})
	if got := new(Conn).RemoteAddrPort(); got.IsValid() {
		t.Errorf("of a zero Conn: got %v", got)
	}
}

// dialedConn returns a connection of a Dialer.
func dialedConn(t *testing.T, kind testnet.Kind) *Conn {
	t.Helper()
	ln := testnet.Listen(t, Listen, kind)
	nc, err := Dial(ln.Addr().Network(), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return nc.(*Conn)
}
