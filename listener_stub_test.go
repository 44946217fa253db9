//go:build !linux || percore_net

package percore

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// The conformance suites test package net's part off Linux. These tests cover our part: the types
// around it, and their errors where net has no equivalent.

// listenKind makes a listener of the kind that is closed when the test ends.
func listenKind(t *testing.T, kind testnet.Kind) *Listener {
	t.Helper()
	return testnet.Listen(t, Listen, kind).(*Listener)
}

func TestStubOnReadableIsUnsupported(t *testing.T) {
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		server, client := connect(t, listenKind(t, kind))
		err := server.OnReadable(func(err error) { t.Errorf("the callback was called, with %v", err) })
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Linux") {
			t.Errorf("got %v, want an errors.ErrUnsupported that names Linux", err)
		}
		if err := server.SetNoWait(true); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("SetNoWait: got %v, want an errors.ErrUnsupported", err)
		}
		if server.CancelOnReadable() {
			t.Error("CancelOnReadable: got true, want false: nothing was armed")
		}
		io.WriteString(client, "x")
		if n, err := server.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Errorf("reading afterwards: got %d, %v, want 1 byte", n, err)
		}
	})
}

func TestStubPerLoopIsTheListener(t *testing.T) {
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		ln := listenKind(t, kind)
		split, err := ln.PerLoop()
		if len(split) != 1 || err != nil {
			t.Fatalf("got %d listeners, %v, want 1", len(split), err)
		}
		connect(t, split[0])
		connect(t, ln) // which goes on accepting as the other does
		if got, want := split[0].Addr(), ln.Addr(); got != want {
			t.Errorf("got address %v, want %v", got, want)
		}
		if err := split[0].Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept on the whole after Close of the part: got %v, want net.ErrClosed", err)
		}
		if err := ln.Close(); err != nil {
			t.Errorf("Close of the whole: got %v, want nil", err)
		}
		_, err = ln.PerLoop()
		wantErr(t, "PerLoop of a closed listener", err, "perloop", net.ErrClosed)
		wantErr(t, "second Close", ln.Close(), "close", net.ErrClosed)
	})
}

// TestStubTCPOptions sets options for which every *Conn has a method, but package net only has one
// on TCP connections.
func TestStubTCPOptions(t *testing.T) {
	options := map[string]func(c *Conn) error{
		"SetNoDelay":         func(c *Conn) error { return c.SetNoDelay(false) },
		"SetLinger":          func(c *Conn) error { return c.SetLinger(-1) },
		"SetKeepAlive":       func(c *Conn) error { return c.SetKeepAlive(true) },
		"SetKeepAlivePeriod": func(c *Conn) error { return c.SetKeepAlivePeriod(time.Minute) },
		"SetKeepAliveConfig": func(c *Conn) error { return c.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true}) },
	}
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		server, _ := connect(t, listenKind(t, kind))
		for name, set := range options {
			err := set(server)
			if kind.IsTCP() {
				if err != nil {
					t.Errorf("%s: got %v, want nil", name, err)
				}
				continue
			}
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "set" || op.Net != "unix" || op.Err != errors.ErrUnsupported {
				t.Errorf("%s: got %#v, want a net.OpError of set on unix that wraps errors.ErrUnsupported", name, err)
			}
		}
		if is, err := server.MultipathTCP(); is || err != nil {
			t.Errorf("MultipathTCP: got %t, %v, want false", is, err)
		}
	})
}

func TestStubUnlink(t *testing.T) {
	testnet.NoLeaks(t)
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	for _, c := range []struct {
		name    string
		prepare func(*Listener)
		want    bool
	}{
		{"default", func(*Listener) {}, false},
		{"kept", func(l *Listener) { l.SetUnlinkOnClose(false) }, true},
		{"kept after all not", func(l *Listener) { l.SetUnlinkOnClose(false); l.SetUnlinkOnClose(true) }, false},
	} {
		path := filepath.Join(testnet.ShortTempDir(t), "s")
		ln, err := Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.prepare(ln.(*Listener))
		ln.Close()
		if got := exists(path); got != c.want {
			t.Errorf("%s: got a file after Close %t, want %t", c.name, got, c.want)
		}
	}
}

// TestStubRefusesFiles: sockets that can't form one listener leave nothing open.
func TestStubRefusesFiles(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("package net has no FileListener on Windows")
	}
	testnet.NoLeaks(t)
	var files []*os.File
	for range 2 {
		one, err := listenKind(t, testnet.Unix).Files()
		if err != nil {
			t.Fatal(err)
		}
		defer one[0].Close()
		files = append(files, one[0])
	}
	for name, files := range map[string][]*os.File{
		"nothing":       nil,
		"nil":           {files[0], nil},
		"two addresses": files,
		"the same":      {files[0], files[0]},
	} {
		ln, err := FileListeners(files...)
		if err == nil {
			ln.Close()
			t.Errorf("%s: got a listener, want an error", name)
		}
	}
}

// TestStubEngineOptions sets options that affect only the engine.
func TestStubEngineOptions(t *testing.T) {
	testnet.NoLeaks(t)
	calls := 0
	lc := ListenConfig{
		Control: func(_, _ string, c syscall.RawConn) error {
			calls++
			return c.Control(func(uintptr) {})
		},
		ReusePort:     true,
		LeastLoaded:   true,
		OnAcceptError: func(err error) { t.Errorf("OnAcceptError was called with %v", err) },
	}
	lc.SetMultipathTCP(true)
	ln := listen(t, lc, "tcp4", "127.0.0.1:0")
	connect(t, ln)
	if calls != 1 {
		t.Errorf("got %d calls of Control, want 1: there is one socket", calls)
	}
	if got := ln.Stats(); got != (ListenerStats{}) {
		t.Errorf("Stats: got %+v, want zeros", got)
	}
}
