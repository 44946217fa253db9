//go:build !linux || percore_net

package percore

import (
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// A socketOf is one of several that listen at the same address, and clients of it that
// wait to be accepted.
type socketOf struct {
	file    *os.File
	clients []net.Conn
}

// openSockets makes sockets that share an address. Package net can do that with unix
// sockets, by removing the file of each.
func openSockets(t *testing.T, n, clients int) (sockets []socketOf) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("package net has no FileListener on Windows")
	}
	network, address := testnet.Address(t, testnet.Unix)
	for range n {
		os.Remove(address)
		ln, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		ln.(*net.UnixListener).SetUnlinkOnClose(false)
		var s socketOf
		for range clients {
			s.clients = append(s.clients, testnet.Dial(t, ln))
		}
		s.file, err = ln.(*net.UnixListener).File()
		ln.Close()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.file.Close() })
		sockets = append(sockets, s)
	}
	return sockets
}

func filesOf(sockets []socketOf) (files []*os.File) {
	for _, s := range sockets {
		files = append(files, s.file)
	}
	return files
}

func mergedListener(t *testing.T, files []*os.File) *Listener {
	t.Helper()
	ln, err := FileListeners(files...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.(*Listener)
}

// TestMergedAcceptsFromAll accepts the connections that have waited at each socket, and more.
func TestMergedAcceptsFromAll(t *testing.T) {
	testnet.NoLeaks(t)
	sockets := openSockets(t, 3, 4)
	ln := mergedListener(t, filesOf(sockets))
	var serving sync.WaitGroup
	defer serving.Wait()
	defer ln.Close()
	for range 2 {
		serving.Go(func() { serveEcho(ln) })
	}
	for _, s := range sockets {
		for _, c := range s.clients {
			wantEcho(t, c, "hello")
		}
	}
	wantEcho(t, testnet.Dial(t, ln), "hello")
}

// TestMergedDeadline moves the deadline while Accept waits, and lets it pass.
func TestMergedDeadline(t *testing.T) {
	testnet.NoLeaks(t)
	ln := mergedListener(t, filesOf(openSockets(t, 2, 0)))
	for range 2 {
		ln.SetDeadline(time.Now().Add(time.Hour))
		failed := make(chan error, 1)
		testnet.GoBlocked(t, "Accept", func() {
			_, err := ln.Accept()
			failed <- err
		})
		ln.SetDeadline(time.Now().Add(time.Millisecond))
		wantErr(t, "Accept", testnet.Receive(t, "Accept", failed), "accept", os.ErrDeadlineExceeded)
		ln.SetDeadline(time.Unix(1, 0))
		_, err := ln.Accept()
		wantErr(t, "Accept after the deadline", err, "accept", os.ErrDeadlineExceeded)
	}
	ln.SetDeadline(time.Time{})
	connect(t, ln)
}

// TestMergedClose closes the listener while connections, and calls of Accept, wait.
func TestMergedClose(t *testing.T) {
	testnet.NoLeaks(t)
	files := filesOf(openSockets(t, 2, 0))
	ln := mergedListener(t, files)
	connect(t, ln)
	for range 8 {
		testnet.Dial(t, ln)
	}
	for range 3 {
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("Close: %v", err)
		}
		_, err := ln.Accept()
		wantErr(t, "Accept of a closed listener", err, "accept", net.ErrClosed)
	}
	closed := mergedListener(t, files) // the files are still the caller's
	failed := make(chan error, 1)
	waiting := mergedListener(t, files)
	testnet.GoBlocked(t, "Accept", func() {
		for {
			c, err := waiting.Accept()
			if err != nil {
				failed <- err
				return
			}
			c.Close()
		}
	})
	waiting.Close()
	wantErr(t, "Accept", testnet.Receive(t, "Accept", failed), "accept", net.ErrClosed)
	closed.Close() // without a call of Accept
}

// TestMergedHandsAllSocketsOn: Files and Control are about all sockets.
func TestMergedHandsAllSocketsOn(t *testing.T) {
	testnet.NoLeaks(t)
	ln := mergedListener(t, filesOf(openSockets(t, 3, 0)))
	files, err := ln.Files()
	if len(files) != 3 || err != nil {
		t.Errorf("Files: got %d, %v, want 3", len(files), err)
	}
	for _, f := range files {
		f.Close()
	}
	if f, err := ln.File(); err != nil {
		t.Errorf("File: %v", err)
	} else {
		f.Close()
	}
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var fds []uintptr
	if err := raw.Control(func(fd uintptr) { fds = append(fds, fd) }); err != nil || len(fds) != 3 {
		t.Errorf("Control: called for %d sockets, %v, want 3", len(fds), err)
	}
	slices.Sort(fds)
	if len(slices.Compact(fds)) != 3 {
		t.Errorf("Control: called for %v, want three sockets", fds)
	}
}

// TestMergedRefuses: sockets that can't be one listener leave nothing open.
func TestMergedRefuses(t *testing.T) {
	testnet.NoLeaks(t)
	a, b := filesOf(openSockets(t, 2, 0)), filesOf(openSockets(t, 1, 0))
	for name, files := range map[string][]*os.File{
		"nothing":       nil,
		"nil":           {a[0], nil},
		"two addresses": {a[0], a[1], b[0]},
		"the same":      {a[0], a[1], a[0]},
	} {
		ln, err := FileListeners(files...)
		if err == nil {
			ln.Close()
			t.Errorf("%s: got a listener, want an error", name)
		}
	}
}
