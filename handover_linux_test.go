//go:build !percore_net

package percore

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/proxyproto"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/internal/testnet"
)

// movable returns a listener and its counterpart for package handover.
func movable(t *testing.T, lc ListenConfig, network string) (*Listener, seam.Listener) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/s"
	}
	ln := listen(t, lc, network, address)
	return ln, seam.ListenerOf(ln)
}

// descriptor returns a copy of c's descriptor.
func descriptor(t *testing.T, c net.Conn) int {
	t.Helper()
	fd := -1
	raw, err := c.(syscall.Conn).SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
		err = errors.Join(err, ctlErr)
	}
	if err != nil {
		t.Fatalf("copying a descriptor: %v", err)
	}
	return fd
}

// move moves c from its listener to another one, as package handover does, and closes the original.
func move(t *testing.T, c net.Conn, served bool, to seam.Listener) {
	t.Helper()
	a := seam.ConnInfoOf(c)
	a.Served = served
	if err := to.Adopt(descriptor(t, c), a); err != nil {
		t.Fatalf("Adopt: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
}

// A connection moves to another listener, with its unread bytes and its addresses.
func TestAdopt(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, perLoop := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s perLoop=%v", network, perLoop), func(t *testing.T) {
				from, _ := movable(t, ListenConfig{}, network)
				to, mover := movable(t, ListenConfig{}, network)
				source := acceptAll(from)
				target := acceptAll(acceptFrom(t, to, perLoop)...)
				for _, served := range []bool{false, true} {
					client, err := net.Dial(network, from.Addr().String())
					if err != nil {
						t.Fatalf("Dial: %v", err)
					}
					defer client.Close()
					c := testnet.Receive(t, "Accept", source)
					wantEchoOf(t, client, c)
					if _, err := io.WriteString(client, "unread"); err != nil {
						t.Fatalf("Write: %v", err)
					}
					want := fmt.Sprint(c.LocalAddr(), c.RemoteAddr())
					move(t, c, served, mover)
					moved := testnet.Receive(t, "Accept", target)
					if got := fmt.Sprint(moved.LocalAddr(), moved.RemoteAddr()); got != want {
						t.Errorf("addresses: got %s, want %s", got, want)
					}
					p := make([]byte, 6)
					if _, err := io.ReadFull(moved, p); err != nil || string(p) != "unread" {
						t.Fatalf("Read: got %q, %v", p, err)
					}
					wantEchoOf(t, client, moved)
					if got := seam.ConnInfoOf(moved).Served; got != served {
						t.Errorf("Served: got %v, want %v", got, served)
					}
					if err := moved.Close(); err != nil {
						t.Fatalf("Close: %v", err)
					}
					if n, err := client.Read(p); n != 0 || err != io.EOF {
						t.Errorf("Read after Close: got %d, %v, want 0, EOF", n, err)
					}
				}
				stats := to.Stats()
				if stats.Adopted != 2 || stats.Accepted != 0 || stats.Conns != 0 {
					t.Errorf("counters: got %+v, want 2 adopted, none accepted, none open", stats)
				}
				if stats := from.Stats(); stats.Conns != 0 {
					t.Errorf("counters of the predecessor: got %d open, want 0", stats.Conns)
				}
			})
		}
	}
}

// The addresses in a PROXY header move with the connection.
func TestAdoptProxied(t *testing.T) {
	lc := ListenConfig{ProxyProtocol: loopback()}
	from, _ := movable(t, lc, "tcp")
	to, mover := movable(t, lc, "tcp")
	source, target := acceptAll(from), acceptAll(to)
	for header, want := range map[string]string{
		headerV1: serverV1 + " " + clientV1,
		headerV2: serverV2 + " " + clientV2,
		"\r\n\r\n\x00\r\nQUIT\n\x21\x31\x00\xd8/run/a" + strings.Repeat("\x00", 102) + "/run/b" + strings.Repeat("\x00", 102): "/run/b /run/a",
	} {
		client, err := net.Dial("tcp", from.Addr().String())
		if err != nil {
			t.Fatalf("Dial: %v", err)
		}
		defer client.Close()
		if _, err := io.WriteString(client, header+"PROXY no header"); err != nil {
			t.Fatalf("Write: %v", err)
		}
		move(t, testnet.Receive(t, "Accept", source), true, mover)
		c := testnet.Receive(t, "Accept", target)
		if got := fmt.Sprint(c.LocalAddr(), " ", c.RemoteAddr()); got != want {
			t.Errorf("addresses: got %s, want %s", got, want)
		}
		p := make([]byte, 15)
		if _, err := io.ReadFull(c, p); err != nil || string(p) != "PROXY no header" {
			t.Errorf("Read: got %q, %v: want what is behind the header", p, err)
		}
		c.Close()
	}
}

// MaxConns counts adopted connections but doesn't limit them. OnAccept may refuse them, and OnClose
// is called for the others.
func TestAdoptAdmission(t *testing.T) {
	var accepted, closed atomic.Int64
	var refuse atomic.Bool
	lc := ListenConfig{
		MaxConns: 1,
		OnAccept: func(_, remote netip.AddrPort) bool {
			if !remote.IsValid() {
				t.Errorf("OnAccept: remote is not valid")
			}
			if refuse.Load() {
				return false
			}
			accepted.Add(1)
			return true
		},
		OnClose: func(netip.AddrPort, netip.AddrPort) { closed.Add(1) },
	}
	from, _ := movable(t, ListenConfig{}, "tcp")
	to, mover := movable(t, lc, "tcp")
	source, target := acceptAll(from), acceptAll(to)
	var conns []net.Conn
	for range 3 {
		_, c := pairThrough(t, from, source)
		move(t, c, true, mover)
		conns = append(conns, testnet.Receive(t, "Accept", target))
	}
	if n := to.Stats().Conns; n != 3 {
		t.Errorf("Open: got %d, want 3", n)
	}
	fresh, err := net.Dial("tcp", to.Addr().String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	defer fresh.Close()
	for i, c := range conns {
		select {
		case <-target:
			t.Fatalf("a connection was accepted while %d others were open", len(conns)-i)
		case <-time.After(20 * time.Millisecond):
		}
		c.Close()
	}
	c := testnet.Receive(t, "Accept below the limit", target)
	c.Close()
	refuse.Store(true)
	client, c := pairThrough(t, from, source)
	move(t, c, true, mover)
	_ = client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("Read of a refused connection: got %d, %v, want 0, EOF", n, err)
	}
	testnet.Eventually(t, "all closed", func() bool { return to.Stats().Conns == 0 })
	if accepted.Load() != 4 || closed.Load() != 4 || to.Stats().Refused != 1 {
		t.Errorf("got %d accepted, %d closed, %d refused, want 4, 4, 1", accepted.Load(), closed.Load(), to.Stats().Refused)
	}
}

// pairThrough returns a client's connection and its other end, from source.
func pairThrough(t *testing.T, to net.Listener, source <-chan net.Conn) (client, accepted net.Conn) {
	t.Helper()
	client, err := net.Dial(to.Addr().Network(), to.Addr().String())
	if err != nil {
		t.Fatalf("Dial: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	return client, testnet.Receive(t, "Accept", source)
}

// Descriptors that are not connections are refused and closed.
func TestAdoptBad(t *testing.T) {
	ln, mover := movable(t, ListenConfig{}, "tcp")
	socket := func(family, kind int) int {
		fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatalf("socket: %v", err)
		}
		return fd
	}
	file, err := os.Open("handover_linux_test.go")
	if err != nil {
		t.Fatal(err)
	}
	plain, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[1])
	files, err := ln.Files()
	if err != nil {
		t.Fatalf("Files: %v", err)
	}
	listening, err := unix.FcntlInt(files[0].Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		f.Close()
	}
	for _, c := range []struct {
		name, want string
		fd         int
	}{
		{"a file", "no socket", plain},
		{"a datagram socket", "no stream socket", socket(unix.AF_INET, unix.SOCK_DGRAM)},
		{"of another family", "of family 10", socket(unix.AF_INET6, unix.SOCK_STREAM)},
		{"a unix socket", "of family 1,", pair[0]},
		{"a listening one", "listens", listening},
	} {
		err := mover.Adopt(c.fd, seam.ConnInfo{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
		if _, err := unix.FcntlInt(uintptr(c.fd), unix.F_GETFD, 0); err != unix.EBADF {
			t.Errorf("%s: the descriptor is open", c.name)
		}
	}
	// If the peer has reset a connection, the other process is not to blame.
	if err := mover.Adopt(socket(unix.AF_INET, unix.SOCK_STREAM), seam.ConnInfo{}); err != nil {
		t.Errorf("a socket without a peer: got %v", err)
	}
	if n := ln.Stats().Conns; n != 0 {
		t.Errorf("Open: got %d, want 0", n)
	}
}

// Closing a listener closes the connections that Accept has not returned.
func TestAdoptAndClose(t *testing.T) {
	from, _ := movable(t, ListenConfig{}, "tcp")
	to, mover := movable(t, ListenConfig{}, "tcp")
	source := acceptAll(from)
	client, c := pairThrough(t, from, source)
	move(t, c, true, mover)
	to.Close()
	_ = client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if n, err := client.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("Read: got %d, %v, want 0, EOF", n, err)
	}
	_, c = pairThrough(t, from, source)
	if err := mover.Adopt(descriptor(t, c), seam.ConnInfo{}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Adopt after Close: got %v, want %v", err, net.ErrClosed)
	}
}

// A paused listener leaves connections in the backlog, where another process finds them, and
// accepts again afterwards.
func TestPause(t *testing.T) {
	for _, max := range []int{0, 100} {
		ln, mover := movable(t, ListenConfig{MaxConns: max}, "tcp")
		conns := acceptAll(ln)
		_, c := pairThrough(t, ln, conns)
		c.Close()
		mover.Pause()
		testnet.Eventually(t, "Settled", mover.Settled)
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatalf("Dial: %v", err)
		}
		defer client.Close()
		select {
		case <-conns:
			t.Fatal("Accept returned a connection while the listener was paused")
		case <-time.After(20 * time.Millisecond):
		}
		mover.Resume()
		c = testnet.Receive(t, "Accept after Resume", conns)
		wantEchoOf(t, client, c)
		c.Close()
	}
}

// While connections arrive, a pause is settled only when the server has the last one: Accept
// returns no connection after that.
func TestPauseUnderLoad(t *testing.T) {
	ln, mover := movable(t, ListenConfig{}, "tcp")
	var passed atomic.Int64
	var accepting, dialing sync.WaitGroup
	for _, l := range perLoop(t, ln) {
		accepting.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				time.Sleep(50 * time.Microsecond) // between Accept and the server's list
				passed.Add(1)
				c.Close()
			}
		})
	}
	var stop atomic.Bool
	for range 4 {
		dialing.Go(func() {
			for !stop.Load() {
				if c, err := net.Dial("tcp", ln.Addr().String()); err == nil {
					_ = c.(*net.TCPConn).SetLinger(0)
					c.Close()
				}
			}
		})
	}
	for range 50 {
		before := passed.Load()
		testnet.Eventually(t, "connections", func() bool { return passed.Load() > before })
		mover.Pause()
		testnet.Eventually(t, "Settled", mover.Settled)
		before = passed.Load()
		time.Sleep(time.Millisecond)
		if after := passed.Load(); after != before {
			t.Fatalf("%d connections came after the pause had settled", after-before)
		}
		mover.Resume()
	}
	stop.Store(true)
	dialing.Wait()
	ln.Close()
	accepting.Wait()
}

// A pause is settled when all goroutines that call Accept have called it again, whichever of them
// sees the pause first.
func TestSettledSeveral(t *testing.T) {
	const several = 3
	for _, max := range []int{0, 100} {
		ln, mover := movable(t, ListenConfig{MaxConns: max}, "tcp")
		got, goOn := make(chan net.Conn), make(chan struct{})
		var accepting sync.WaitGroup
		for range several {
			accepting.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					got <- c
					<-goOn
				}
			})
		}
		a := ln.listener.all
		testnet.Eventually(t, "all in Accept", func() bool { return a.waiting.Load() == several })
		for hands := range several {
			for range hands + 1 {
				_, c := pairThrough(t, ln, got)
				defer c.Close()
			}
			mover.Pause()
			testnet.Eventually(t, "a look at the pause", func() bool {
				return hands+1 == several || a.lastPause.Load() == ln.listener.pauses.Load()
			})
			for range hands + 1 {
				if mover.Settled() {
					t.Errorf("Settled while %d goroutines have a connection: got true", hands+1)
				}
				goOn <- struct{}{}
			}
			testnet.Eventually(t, "Settled", mover.Settled)
			mover.Resume()
		}
		ln.Close()
		accepting.Wait()
	}
}

// While OnAccept is called for a connection that Accept has taken out of the queue, it is on its way.
func TestSettledWhileAsked(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	from, _ := movable(t, ListenConfig{}, "tcp")
	to, mover := movable(t, ListenConfig{OnAccept: func(netip.AddrPort, netip.AddrPort) bool {
		close(asked)
		<-answer
		return true
	}}, "tcp")
	source, target := acceptAll(from), acceptAll(to)
	mover.Pause()
	testnet.Eventually(t, "Settled", mover.Settled)
	_, c := pairThrough(t, from, source)
	move(t, c, true, mover)
	testnet.Receive(t, "OnAccept", asked)
	if mover.Settled() {
		t.Error("Settled while a connection is on its way: got true")
	}
	close(answer)
	testnet.Receive(t, "Accept", target).Close()
	testnet.Eventually(t, "Settled", mover.Settled)
}

// Closing and pausing may come in any order.
func TestMovingCalls(t *testing.T) {
	ln, mover := movable(t, ListenConfig{}, "tcp")
	var calls sync.WaitGroup
	for _, call := range []func(){mover.Pause, mover.Resume, func() { mover.Settled() }, func() { ln.Close() },
		func() { _ = mover.Adopt(-1, seam.ConnInfo{Client: proxyproto.Header{}}) }} {
		calls.Go(func() {
			for range 100 {
				call()
			}
		})
	}
	calls.Wait()
	if seam.ListenerOf(nil) != nil || seam.ListenerOf(new(Listener)) != nil {
		t.Error("ListenerOf: want nil for a listener without an engine")
	}
}
