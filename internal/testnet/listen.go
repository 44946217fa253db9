package testnet

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// A ListenFunc opens a listener, as net.Listen does.
type ListenFunc func(network, address string) (net.Listener, error)

// A Kind names a network and a sort of address on it, for test tables.
type Kind string

// The kinds of listeners that stream tests run on.
const (
	TCP4     Kind = "tcp4"     // 127.0.0.1, any port
	TCP6     Kind = "tcp6"     // ::1, any port
	Unix     Kind = "unix"     // a path in a temporary directory
	Abstract Kind = "abstract" // Linux's abstract unix namespace
)

// Kinds lists every kind; Address skips kinds that the machine lacks.
func Kinds() []Kind { return []Kind{TCP4, TCP6, Unix, Abstract} }

// OnEachKind runs the test as a subtest for every kind, each of which may leave nothing behind.
func OnEachKind(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			NoLeaks(t)
			test(t, kind)
		})
	}
}

// IsTCP reports whether k is one of the TCP kinds.
func (k Kind) IsTCP() bool { return k == TCP4 || k == TCP6 }

// addressCount makes abstract addresses unique within the process.
var addressCount atomic.Int64

// Address returns the arguments for a ListenFunc that open a free loopback address of this kind. It
// skips the test, saying why, where the machine does not have the kind.
func Address(t testing.TB, kind Kind) (network, address string) {
	t.Helper()
	switch kind {
	case TCP4:
		return "tcp4", "127.0.0.1:0"
	case TCP6:
		if !HasIPv6() {
			t.Skip("this machine has no IPv6 loopback address")
		}
		return "tcp6", "[::1]:0"
	case Unix:
		return "unix", filepath.Join(ShortTempDir(t), "s")
	case Abstract:
		if runtime.GOOS != "linux" {
			t.Skip("abstract unix addresses exist on Linux only")
		}
		return "unix", fmt.Sprintf("@percore-test-%d-%d", os.Getpid(), addressCount.Add(1))
	}
	t.Fatalf("no network kind %q", kind)
	return "", ""
}

// ReservedAddress is Address with an address that no other program gets until the test ends, unless it
// asks for just that. Clients may dial on after a listener is closed, and would disturb the next server
// that gets its port.
func ReservedAddress(t testing.TB, kind Kind) (network, address string) {
	t.Helper()
	network, address = Address(t, kind)
	switch kind {
	case TCP4:
		address = Reserve(t)
	case TCP6:
		address = reserve(t, net.IPv6loopback).String()
	}
	return network, address
}

// Reserve returns the ReservedAddress of TCP4.
func Reserve(t testing.TB) string {
	t.Helper()
	return reserve(t, net.IPv4(127, 0, 0, 1)).String()
}

// ShortTempDir is t.TempDir with a name short enough for a unix socket path,
// which has room for 107 bytes.
func ShortTempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pc")
	if err != nil {
		t.Fatalf("temporary directory: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TempFile returns an open file with the given content, at its beginning.
func TempFile(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(ShortTempDir(t), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatalf("making a file: %v", err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("opening a file: %v", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// HasIPv6 reports whether ::1 can be listened on.
var HasIPv6 = sync.OnceValue(func() bool {
	ln, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		return false
	}
	ln.Close()
	return true
})

// Listen opens a listener of the kind on an address that stays reserved, and closes it when the test
// ends.
func Listen(t testing.TB, listen ListenFunc, kind Kind) net.Listener {
	t.Helper()
	network, address := ReservedAddress(t, kind)
	ln, err := listen(network, address)
	if err != nil {
		t.Fatalf("listening on %s %s: %v", network, address, err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// Dial connects to ln with net's own dialer and closes the connection when the test ends.
func Dial(t testing.TB, ln net.Listener) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	for range 100 {
		c, err = net.Dial(ln.Addr().Network(), ln.Addr().String())
		// A server that aborts connections at any time may have done so before Dial has looked.
		if !errors.Is(err, syscall.ECONNRESET) {
			break
		}
	}
	if err != nil {
		t.Fatalf("dialing %v: %v", ln.Addr(), err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// HangUp ends a TCP connection, with RST or with FIN. With FIN it waits for the other end: to close a
// connection that has unread bytes sends RST.
func HangUp(c *net.TCPConn, resets bool) {
	if resets {
		_ = c.SetLinger(0)
	} else {
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	}
	c.Close()
}

// Connect makes one connection to ln and returns both ends: server is what Accept returned, client
// is a connection of package net. No other connection may be pending on ln. Both are closed when
// the test ends.
func Connect(t testing.TB, ln net.Listener) (server, client net.Conn) {
	t.Helper()
	type accepted struct {
		conn net.Conn
		err  error
	}
	ch := make(chan accepted, 1)
	go func() {
		c, err := ln.Accept()
		ch <- accepted{c, err}
	}()
	client = Dial(t, ln)
	a := Receive(t, "Accept", ch)
	if a.err != nil {
		t.Fatalf("accepting on %v: %v", ln.Addr(), a.err)
	}
	t.Cleanup(func() { a.conn.Close() })
	return a.conn, client
}

// Pair opens a listener and returns both ends of a connection through it. All three are closed when
// the test ends.
func Pair(t testing.TB, listen ListenFunc, kind Kind) (server, client net.Conn) {
	t.Helper()
	return Connect(t, Listen(t, listen, kind))
}
