//go:build !percore_net

package percore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	engine "github.com/percore/percore/internal/loop"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// dialFrom connects to ln with d. ln accepts the other end. Both ends are closed when the test ends.
func dialFrom(t testing.TB, d *Dialer, ln net.Listener) (ours *Conn, peer net.Conn) {
	t.Helper()
	next := goAccept(t, ln)
	c, err := d.DialContext(t.Context(), ln.Addr().Network(), ln.Addr().String())
	return dialed(t, c, err), awaitConn(t, next)
}

// TestDialGroup: a dialer's own group places its connections.
func TestDialGroup(t *testing.T) {
	onEachDialKind(t, func(t *testing.T, ln net.Listener) {
		g := newGroupOf(t, loop.Config{Loops: 3, Strategy: loop.Thread})
		d := Dialer{Group: g}
		for range 6 {
			c, err := d.Dial(ln.Addr().Network(), ln.Addr().String())
			dialed(t, c, err)
		}
		loops := (*engine.Group)(g)
		for i := range loops.Len() {
			if got := loops.Loop(i).Descriptors(); got != 2 {
				t.Errorf("loop %d: got %d connections, want 2 as the others", i, got)
			}
		}
	})
}

// TestDialDefaultGroup follows the default group in a process that only dials: it
// starts with the first connection, ends with the last, and starts anew.
func TestDialDefaultGroup(t *testing.T) {
	onEachDialKind(t, func(t *testing.T, ln net.Listener) {
		dial := func() *Conn {
			c, err := Dial(ln.Addr().Network(), ln.Addr().String())
			return dialed(t, c, err)
		}
		current := func() *engine.Group {
			defaultGroup.Lock()
			defer defaultGroup.Unlock()
			return defaultGroup.group
		}
		first, second := dial(), dial()
		group := current()
		if got := group.Counts().Descriptors; got != 2 {
			t.Errorf("two connections: got %d in one group, want both", got)
		}
		first.Close()
		select {
		case <-group.Stopped():
			t.Error("the group has ended with a connection left")
		case <-time.After(20 * time.Millisecond):
		}
		wantEcho(t, second, "hello")
		second.Close()
		testnet.Receive(t, "the end of the group", group.Stopped())
		third := dial()
		if current() == group {
			t.Error("a new connection got the group that has ended")
		}
		wantEcho(t, third, "hello again")
	})
}

// TestDialEndedGroup checks that a connection is not made if it can't have loops, and that the
// error says why.
func TestDialEndedGroup(t *testing.T) {
	onEachDialKind(t, func(t *testing.T, ln net.Listener) {
		g, err := loop.NewGroup(loop.Config{Loops: 1})
		if err != nil {
			t.Fatal(err)
		}
		g.Close()
		testnet.Receive(t, "the end of the group", g.Stopped())
		sockets := 0
		d := Dialer{Group: g, Control: func(string, string, syscall.RawConn) error { sockets++; return nil }}
		c, err := d.Dial(ln.Addr().Network(), ln.Addr().String())
		if c != nil {
			t.Errorf("got a connection, %v", c)
		}
		wantErr(t, "Dial on an ended group", err, "dial", loop.ErrStopped)
		if sockets != 0 {
			t.Errorf("got %d sockets made, want none", sockets)
		}
		var operr *net.OpError
		if errors.As(err, &operr) && operr.Net != ln.Addr().Network() {
			t.Errorf("got an error about %s, want %s", operr.Net, ln.Addr().Network())
		}
	})
}

// TestDialAddrsAfterReset asks for the addresses for the first time when the kernel no longer knows the
// peer's.
func TestDialAddrsAfterReset(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	c, peer := dialFrom(t, &Dialer{Group: newGroup(t, 1)}, ln)
	if err := peer.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	peer.Close()
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("Read: got %v, want %v", err, syscall.ECONNRESET)
	}
	if got, want := c.RemoteAddr().String(), ln.Addr().String(); got != want {
		t.Errorf("got the peer's address %s, want %s", got, want)
	}
	if got, want := c.LocalAddr().String(), peer.RemoteAddr().String(); got != want {
		t.Errorf("got the local address %s, want %s", got, want)
	}
}

// TestDialLeavesNothing checks what dialing leaves behind. It must be one descriptor, neither inherited
// nor blocking, and only one epoll instance may watch it: the loop's, and not also the runtime's.
func TestDialLeavesNothing(t *testing.T) {
	onEachDialKind(t, func(t *testing.T, ln net.Listener) {
		d := Dialer{Group: newGroup(t, 1)}
		warmUp, err := d.Dial(ln.Addr().Network(), ln.Addr().String())
		wantEcho(t, dialed(t, warmUp, err), "hello") // the peer's descriptor is there now
		c, err := d.Dial(ln.Addr().Network(), ln.Addr().String())
		ours := dialed(t, c, err)
		wantEcho(t, ours, "hello")
		var fd int
		if err := ours.sock.fd.Control(func(sysfd int) syscall.Errno { fd = sysfd; return 0 }); err != nil {
			t.Fatal(err)
		}
		wantFlags(t, fd)
		inode := inodeOf(t, fd)
		var same []int
		for other := range descriptors(t) {
			if link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", other)); err == nil && link == fmt.Sprintf("socket:[%d]", inode) {
				same = append(same, other)
			}
		}
		if len(same) != 1 || same[0] != fd {
			t.Errorf("got the socket under the descriptors %v, want %d alone", same, fd)
		}
		if got := watchers(t, inode); len(got) != 1 {
			t.Errorf("got the socket watched by the epoll instances %v, want one", got)
		}
	})
}

func inodeOf(t *testing.T, fd int) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}

// watchers returns the descriptors of the epoll instances in which the file with
// the given inode is registered (proc(5), /proc/pid/fdinfo).
func watchers(t *testing.T, inode uint64) (epolls []int) {
	t.Helper()
	for fd := range descriptors(t) {
		info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(info)) {
			if strings.HasPrefix(line, "tfd:") && strings.Contains(line+" ", fmt.Sprintf(" ino:%x ", inode)) {
				epolls = append(epolls, fd)
			}
		}
	}
	return epolls
}

// isOneOf reports whether err is one of targets, which may include nil.
func isOneOf(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

func init() {
	// Reads addresses, connects, and accepts its parent's connections.
	children["accept many"] = func() {
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			exitChild("listening", err)
		}
		fmt.Println(ln.Addr())
		var conns []net.Conn
		count, _ := strconv.Atoi(os.Getenv("CONNECTIONS"))
		for range count {
			c, err := ln.Accept()
			if err != nil {
				exitChild("accepting", err)
			}
			conns = append(conns, c)
		}
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		for _, c := range conns {
			c.Close()
		}
		ln.Close()
	}
}

// TestIdleDialedConnBudget measures the heap that a dialed connection takes while no goroutine
// reads it. It is what an accepted connection takes, plus the two addresses that package net has
// made, and no goroutine.
func TestIdleDialedConnBudget(t *testing.T) {
	testnet.NoLeaks(t)
	const connections, heapBytesMax = 1000, 600
	child := testnet.StartChild(t, "accept many", "CONNECTIONS="+strconv.Itoa(connections))
	out := bufio.NewReader(child.Stdout)
	address, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("the address: %v", err)
	}
	to := netip.MustParseAddrPort(strings.TrimSpace(address))
	d := Dialer{Group: newGroup(t, 1)}
	wantIdleBudget(t, connections, heapBytesMax, child, out, func() (*Conn, error) {
		return d.DialTCP(t.Context(), "tcp4", netip.AddrPort{}, to)
	})
}

// TestDialStorm dials from many goroutines at once, with contexts that end at random moments, to
// listeners that come and go. Dial must return one of the results that it has in net. A returned
// connection works or ends, and nothing is left behind.
func TestDialStorm(t *testing.T) {
	for _, procs := range []int{1, 2, 8} {
		t.Run(fmt.Sprintf("procs%d", procs), func(t *testing.T) {
			testnet.NoLeaks(t)
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
			for _, kind := range testnet.Kinds() {
				t.Run(string(kind), func(t *testing.T) { dialStorm(t, kind) })
			}
		})
	}
}

func dialStorm(t *testing.T, kind testnet.Kind) {
	rounds, dialers := 6, 8
	if testing.Short() || race.Enabled {
		rounds = 2
	}
	for range rounds {
		ln := testnet.Listen(t, Listen, kind)
		go serveEcho(ln)
		var all sync.WaitGroup
		for i := range dialers {
			all.Go(func() {
				for j := range 12 {
					stormOnce(t, ln.Addr(), time.Duration((7*i+13*j)%40)*25*time.Microsecond)
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Millisecond) // in the middle of it, or not: both are allowed
			ln.Close()
		})
		testnet.Within(t, "all dialers", all.Wait)
	}
}

// stormOnce dials with a context that ends after a pause, or never if it is 0. It uses the
// connection if there is one.
func stormOnce(t *testing.T, addr net.Addr, pause time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if pause > 0 {
		timer := time.AfterFunc(pause, cancel)
		defer timer.Stop()
	}
	var d Dialer
	c, err := d.DialContext(ctx, addr.Network(), addr.String())
	if err != nil {
		var operr *net.OpError
		if c != nil || !errors.As(err, &operr) || operr.Op != "dial" || errors.Is(err, net.ErrClosed) ||
			// The errors of a listener that is gone, or full.
			!isOneOf(err, []error{context.Canceled, syscall.ECONNREFUSED, syscall.ENOENT, syscall.ECONNRESET, syscall.EAGAIN}) {
			t.Errorf("Dial: got %v, %v", c, err)
		}
		return
	}
	defer c.Close()
	cancel() // has no effect any more
	got, err := roundTrip(c, "hello")
	if err == nil && got != "hello" {
		t.Errorf("echo: got %q, want hello", got)
	}
	if err != nil && !isOneOf(err, []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE}) {
		t.Errorf("echo: got %v, want an echo or the end", err)
	}
}
