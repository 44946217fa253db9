//go:build !linux

package testnet

import (
	"net"
	"testing"
)

// reserve returns a port of ip that is free now.
func reserve(t testing.TB, ip net.IP) *net.TCPAddr {
	t.Helper()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: ip})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr)
}
