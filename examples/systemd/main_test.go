package main

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestListen plays the part of systemd: it passes sockets of two names, one of which has two.
func TestListen(t *testing.T) {
	lc := percore.ListenConfig{ReusePort: true}
	first, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	admin := testnet.Listen(t, net.Listen, testnet.TCP4)
	var files []*os.File
	sockets, err := first.(*percore.Listener).Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range sockets {
		files = append(files, os.NewFile(fd(t, f), "http"))
		f.Close()
	}
	f, err := admin.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, os.NewFile(fd(t, f), "admin"))
	f.Close()
	first.Close()

	listeners, err := listen(files)
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]net.Addr{"http": first.Addr(), "admin": admin.Addr()} {
		if ln := listeners[name]; ln == nil || ln.Addr().String() != address.String() {
			t.Errorf("%s: got %v, want a listener on %s", name, ln, address)
		}
	}
	if err := closeAll(listeners); err != nil {
		t.Error(err)
	}
	if _, err := listen(nil); err == nil {
		t.Error("without sockets: got no error, want one")
	}
}

// fd returns a copy of a file's descriptor, for a file with another name to own.
func fd(t *testing.T, f *os.File) uintptr {
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var copied int
	if e := raw.Control(func(fd uintptr) { copied, err = syscall.Dup(int(fd)) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return uintptr(copied)
}
