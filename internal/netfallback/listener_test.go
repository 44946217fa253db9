package netfallback

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/accepting"
	"github.com/percore/percore/internal/testnet"
)

// A sharedSocket is one of several that listen at the same address, with clients that wait to be
// accepted from it.
type sharedSocket struct {
	Socket
	clients []net.Conn
}

// openSockets opens sockets that share an address. Package net can do that with unix sockets, by
// removing the file of each.
func openSockets(t *testing.T, n, clients int) (sockets []sharedSocket) {
	t.Helper()
	network, address := testnet.Address(t, testnet.Unix)
	for range n {
		os.Remove(address)
		ln, err := net.Listen(network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		ln.(*net.UnixListener).SetUnlinkOnClose(false)
		s := sharedSocket{Socket: ln.(Socket)}
		for range clients {
			s.clients = append(s.clients, testnet.Dial(t, ln))
		}
		sockets = append(sockets, s)
	}
	return sockets
}

// listenOn returns a listener on the sockets and closes it when the test ends.
func listenOn(t *testing.T, sockets []sharedSocket, config accepting.Config) *Listener {
	t.Helper()
	var all []Socket
	for _, s := range sockets {
		all = append(all, s.Socket)
	}
	l := New(all, &config)
	t.Cleanup(func() { l.Close() })
	return l
}

// configs are the options that the tests run with: without limits, and with limits that allow
// everything.
var configs = []accepting.Config{{}, {MaxConns: 1000, OnAccept: func(_, _ netip.AddrPort) bool { return true }}}

// wantErr fails the test unless err is target, in an OpError of Accept.
func wantErr(t *testing.T, what string, err, target error) {
	t.Helper()
	var operr *net.OpError
	if !errors.Is(err, target) || !errors.As(err, &operr) || operr.Op != "accept" {
		t.Errorf("%s: got %v, want an OpError of accept that is %v", what, err, target)
	}
}

// goAccept calls Accept, which blocks, and closes the connection that it returns.
func goAccept(t *testing.T, ln *Listener) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	testnet.GoBlocked(t, "Accept", func() {
		c, err := ln.Accept()
		if err == nil {
			c.Close()
		}
		done <- err
	})
	return done
}

// wantEcho fails the test unless the peer echoes.
func wantEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	got := make([]byte, len(text))
	_, err := io.WriteString(c, text)
	if err == nil {
		_, err = io.ReadFull(c, got)
	}
	if err != nil || string(got) != text {
		t.Errorf("echo: got %q, %v, want %q", got, err, text)
	}
}

// TestAcceptsFromAll accepts the connections that wait at each socket, and more.
func TestAcceptsFromAll(t *testing.T) {
	testnet.NoLeaks(t)
	for _, n := range []int{1, 3} {
		for _, config := range configs {
			sockets := openSockets(t, n, 4)
			ln := listenOn(t, sockets, config)
			var serving sync.WaitGroup
			for range 2 {
				serving.Go(func() {
					for {
						c, err := ln.Accept()
						if err != nil {
							wantErr(t, "Accept of a closed listener", err, net.ErrClosed)
							return
						}
						serving.Go(func() {
							defer c.Close()
							io.Copy(c, c)
						})
					}
				})
			}
			for _, s := range sockets {
				for _, c := range s.clients {
					wantEcho(t, c, "hello")
					c.Close()
				}
			}
			c := testnet.Dial(t, ln)
			wantEcho(t, c, "hello")
			c.Close()
			ln.Close()
			testnet.Within(t, "the server", serving.Wait)
		}
	}
}

// TestDeadline moves the deadline while Accept waits, and lets it pass.
func TestDeadline(t *testing.T) {
	testnet.NoLeaks(t)
	for _, n := range []int{1, 2} {
		for _, config := range configs {
			ln := listenOn(t, openSockets(t, n, 0), config)
			for range 2 {
				ln.SetDeadline(time.Now().Add(time.Hour))
				failed := goAccept(t, ln)
				ln.SetDeadline(time.Now().Add(time.Millisecond))
				wantErr(t, "Accept", testnet.Receive(t, "Accept", failed), os.ErrDeadlineExceeded)
				ln.SetDeadline(time.Unix(1, 0))
				_, err := ln.Accept()
				wantErr(t, "Accept after the deadline", err, os.ErrDeadlineExceeded)
			}
			ln.SetDeadline(time.Time{})
			testnet.Connect(t, ln)
		}
	}
}

// TestClose closes the listener while connections and calls of Accept wait.
func TestClose(t *testing.T) {
	testnet.NoLeaks(t)
	for _, n := range []int{1, 2} {
		for _, config := range configs {
			ln := listenOn(t, openSockets(t, n, 0), config)
			testnet.Connect(t, ln)
			for range 8 {
				testnet.Dial(t, ln)
			}
			for i := range 3 {
				if err := ln.Close(); i == 0 && err != nil || i > 0 && !errors.Is(err, net.ErrClosed) {
					t.Errorf("Close number %d: got %v", i+1, err)
				}
				_, err := ln.Accept()
				wantErr(t, "Accept of a closed listener", err, net.ErrClosed)
			}
			waiting := listenOn(t, openSockets(t, n, 0), config)
			failed := goAccept(t, waiting)
			waiting.Close()
			wantErr(t, "Accept", testnet.Receive(t, "Accept", failed), net.ErrClosed)
			listenOn(t, openSockets(t, n, 0), config).Close() // without any call of Accept
		}
	}
}

// TestFullAndClosed: a call of Accept that waits for a slot reacts to the deadline, to Close, and
// to the next free slot.
func TestFullAndClosed(t *testing.T) {
	testnet.NoLeaks(t)
	for _, n := range []int{1, 2} {
		ln := listenOn(t, openSockets(t, n, 0), accepting.Config{MaxConns: 1})
		first, _ := testnet.Connect(t, ln)
		waiting := goAccept(t, ln)
		ln.SetDeadline(time.Unix(1, 0))
		wantErr(t, "Accept past its deadline", testnet.Receive(t, "Accept", waiting), os.ErrDeadlineExceeded)
		ln.SetDeadline(time.Time{})
		waiting = goAccept(t, ln)
		testnet.Dial(t, ln)
		first.Close()
		if err := testnet.Receive(t, "Accept", waiting); err != nil {
			t.Errorf("Accept after a Close: %v", err)
		}
		testnet.Connect(t, ln)
		waiting = goAccept(t, ln)
		ln.Close()
		wantErr(t, "Accept", testnet.Receive(t, "Accept", waiting), net.ErrClosed)
		if _, open, _ := ln.Counts(); open != 1 {
			t.Errorf("got %d open connections, want 1", open)
		}
	}
}

// TestHandsAllSocketsOn: Files and Control work on all sockets.
func TestHandsAllSocketsOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("package net has no files of sockets on Windows")
	}
	testnet.NoLeaks(t)
	ln := listenOn(t, openSockets(t, 3, 0), accepting.Config{})
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

// TestWrappers lists which methods of package net's connections a connection with a slot replaces,
// and which it keeps.
func TestWrappers(t *testing.T) {
	const counted = "only Close frees the slot, and only the addresses can be the PROXY header's"
	const own = "it is a method of limited, which both embed"
	const both = `CloseRead CloseWrite File Read ReadFrom SetDeadline SetReadBuffer SetReadDeadline SetWriteBuffer
		SetWriteDeadline SyscallConn Write`
	const owns = "Close LocalAddr ProxyTLVs RemoteAddr"
	testnet.CheckMethods[*limited](t, testnet.MethodTable{Own: owns})
	testnet.CheckMethods[*limitedTCP](t, testnet.MethodTable{
		Promoted: map[string]string{counted: both + ` MultipathTCP SetKeepAlive SetKeepAliveConfig SetKeepAlivePeriod
			SetLinger SetNoDelay WriteTo`, own: owns},
	})
	testnet.CheckMethods[*limitedUnix](t, testnet.MethodTable{
		Promoted: map[string]string{counted: both + " ReadFromUnix ReadMsgUnix WriteMsgUnix WriteTo WriteToUnix",
			own: owns},
	})
}

// TestSilentConnsMakeRoom: as many connections as may wait for their header don't keep others out.
func TestSilentConnsMakeRoom(t *testing.T) {
	sockets := openSockets(t, 1, headersMax)
	l := listenOn(t, sockets, accepting.Config{Proxy: &accepting.ProxyConfig{HeaderTimeout: time.Hour}})
	l.silentMin = time.Millisecond
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Errorf("Accept: %v", err)
		}
		accepted <- c
	}()
	client := testnet.Dial(t, l)
	if _, err := io.WriteString(client, "PROXY TCP4 192.0.2.1 198.51.100.1 12345 443\r\n"); err != nil {
		t.Fatal(err)
	}
	c := testnet.Receive(t, "Accept", accepted)
	defer c.Close()
	if got := c.RemoteAddr().String(); got != "192.0.2.1:12345" {
		t.Errorf("got the client %s, want that of the header", got)
	}
	if n := l.counts.Load(accepting.MadeRoom); n == 0 {
		t.Error("got no connection closed to make room")
	}
}
