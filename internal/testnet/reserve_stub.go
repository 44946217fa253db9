//go:build !linux

package testnet

import (
	"net"
	"testing"
)

// Reserve returns an address that is free now.
func Reserve(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}
