package main

import (
	"os"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// carried replaces tableflip's descriptors, and passes them on within a process.
type carried map[string]*os.File

func (c carried) AddFile(name string, f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	if e := raw.Control(func(s uintptr) { fd, err = syscall.Dup(int(s)) }); e != nil || err != nil {
		return err
	}
	c[name] = os.NewFile(uintptr(fd), name)
	return nil
}

func (c carried) File(name string) (*os.File, error) {
	f := c[name]
	delete(c, name)
	return f, nil
}

// TestListen makes a successor take over the listener while a connection waits in it.
func TestListen(t *testing.T) {
	fds := make(carried)
	first, err := listen(fds, "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	waiting := testnet.Dial(t, first)
	files, err := first.(*percore.Listener).Files()
	if err != nil || len(fds) != len(files) {
		t.Errorf("got %d sockets carried, %v, want %d", len(fds), err, len(files))
	}
	closeAll(files)
	first.Close()

	second, err := listen(fds, "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if second.Addr().String() != first.Addr().String() {
		t.Errorf("got a listener on %v, want it on %v", second.Addr(), first.Addr())
	}
	c, err := second.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, want := c.RemoteAddr().String(), waiting.LocalAddr().String(); got != want {
		t.Errorf("got a connection from %s, want %s", got, want)
	}
}
