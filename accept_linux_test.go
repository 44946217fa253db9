//go:build !percore_net

package percore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
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

// newGroup makes a group of n loops, which must end with the test: nothing may hold it after its
// listeners and connections are closed.
func newGroup(t testing.TB, n int) *loop.Group {
	t.Helper()
	return newGroupOf(t, loop.Config{Loops: n})
}

func newGroupOf(t testing.TB, config loop.Config) *loop.Group {
	t.Helper()
	g, err := loop.NewGroup(config)
	if err != nil {
		t.Fatalf("NewGroup(%+v): %v", config, err)
	}
	t.Cleanup(func() {
		g.Close()
		testnet.Receive(t, "the end of the group", g.Stopped())
	})
	return g
}

// Each shape of listener accepts in its own way: from a socket per loop, from
// one socket for all, and onto the loop of the socket or the least loaded.
var shapes = []struct {
	name string
	open func(t testing.TB, lc ListenConfig) *Listener
}{
	{"tcp", func(t testing.TB, lc ListenConfig) *Listener {
		return listen(t, lc, "tcp4", "127.0.0.1:0")
	}},
	{"least loaded", func(t testing.TB, lc ListenConfig) *Listener {
		lc.LeastLoaded = true
		return listen(t, lc, "tcp4", "127.0.0.1:0")
	}},
	{"unix", func(t testing.TB, lc ListenConfig) *Listener {
		network, address := testnet.Address(t, testnet.Unix)
		return listen(t, lc, network, address)
	}},
	{"inherited", func(t testing.TB, lc ListenConfig) *Listener {
		f := fileOf(t, testnet.Listen(t, net.Listen, testnet.TCP4))
		ln, err := lc.FileListener(f)
		f.Close()
		if err != nil {
			t.Fatalf("FileListener: %v", err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln.(*Listener)
	}},
}

func forEachShape(t *testing.T, test func(t *testing.T, open func(t testing.TB, lc ListenConfig) *Listener)) {
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			test(t, shape.open)
		})
	}
}

// dialMany makes n connections and sends each one's number on it.
func dialMany(t testing.TB, ln net.Listener, n int) []net.Conn {
	t.Helper()
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = testnet.Dial(t, ln)
		if err := binary.Write(conns[i], binary.BigEndian, uint32(i)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	return conns
}

// numberOf reads dialMany's number.
func numberOf(c net.Conn) (n uint32, err error) {
	c.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	err = binary.Read(c, binary.BigEndian, &n)
	return n, err
}

// acceptNumbers passes the number of each connection of ln to take, until ln is closed.
func acceptNumbers(t testing.TB, ln net.Listener, take func(n uint32)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			wantErr(t, "Accept", err, "accept", net.ErrClosed)
			return
		}
		if n, err := numberOf(c); err != nil {
			t.Errorf("reading: %v", err)
		} else {
			take(n)
		}
		c.Close()
	}
}

// TestCloseResetsWaitingConnections closes a listener whose clients wait in the backlog.
func TestCloseResetsWaitingConnections(t *testing.T) {
	forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
		ln := open(t, ListenConfig{Group: newGroup(t, 2)})
		perLoop(t, ln)
		clients := dialMany(t, ln, 40)
		if err := ln.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
		for i, c := range clients {
			if err := awaitEnd(c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("client %d: got %v, want a reset", i, err)
			}
		}
	})
}

// TestListenerControlReentry calls the listener from the function that has its descriptor, which
// package net allows.
func TestListenerControlReentry(t *testing.T) {
	testnet.NoLeaks(t)
	ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testnet.Within(t, "Control", func() {
		calls := 0
		err := raw.Control(func(uintptr) {
			calls++
			f, err := ln.File()
			if err != nil {
				t.Errorf("File: %v", err)
				return
			}
			f.Close()
			if err := raw.Control(func(uintptr) {}); err != nil {
				t.Errorf("Control within Control: %v", err)
			}
			if _, err := ln.PerLoop(); err != nil {
				t.Errorf("PerLoop: %v", err)
			}
		})
		if err != nil || calls != 2 {
			t.Errorf("Control: got %d calls, %v, want 2: one per socket", calls, err)
		}
	})
	ln.Close()
	wantErr(t, "Control after Close", raw.Control(func(uintptr) { t.Error("called") }), "raw-control", net.ErrClosed)
}

// shutDown makes accepting impossible by shutting the listening sockets down.
func shutDown(t testing.TB, ln net.Listener) {
	t.Helper()
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		if err := unix.Shutdown(int(fd), unix.SHUT_RDWR); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	if err != nil {
		t.Errorf("Control: %v", err)
	}
}

// TestBrokenSocket shuts the listening sockets down: Accept must fail, wherever
// it waits, as package net's does.
func TestBrokenSocket(t *testing.T) {
	reference := testnet.Listen(t, net.Listen, testnet.TCP4)
	shutDown(t, reference)
	_, err := reference.Accept()
	want := withoutPort(err, reference.Addr())

	forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
		ln := open(t, ListenConfig{Group: newGroup(t, 2)})
		family := append([]*Listener{ln}, perLoop(t, ln)...)
		errs := make(chan error, 2*len(family))
		for _, ln := range family {
			go func() {
				for range 2 {
					_, err := ln.Accept()
					errs <- err
				}
			}()
		}
		shutDown(t, ln)
		for range cap(errs) {
			err := testnet.Receive(t, "Accept", errs)
			wantErr(t, "Accept", err, "accept", syscall.EINVAL)
			if got := withoutPort(err, ln.Addr()); ln.listener.network == "tcp4" && got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		if err := ln.SetDeadline(time.Time{}); err != nil {
			t.Errorf("SetDeadline: got %v, want nil as from package net", err)
		}
		if err := ln.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
	})
}

// TestPerLoop checks that the parts of a listener, one for each socket, return all connections,
// including those that waited before the split. The listener itself must continue to accept.
func TestPerLoop(t *testing.T) {
	const early, late = 30, 30
	forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
		ln := open(t, ListenConfig{Group: newGroup(t, 3)})
		clients := dialMany(t, ln, early)
		subs := perLoop(t, ln)
		if want := ln.Stats().Sockets; len(subs) != want {
			t.Fatalf("got %d listeners, want %d, one for each socket", len(subs), want)
		}
		last := len(subs) - 1
		subs[last] = perLoop(t, ln)[last] // the parts from a second call are just as good
		accepted := make(chan uint32, early+late)
		var accepting sync.WaitGroup
		for i, sub := range append(slices.Clone(subs), ln) {
			if sub.Addr() != ln.Addr() {
				t.Errorf("listener %d: got address %v, want %v", i, sub.Addr(), ln.Addr())
			}
			accepting.Go(func() { acceptNumbers(t, sub, func(n uint32) { accepted <- n }) })
		}
		clients = append(clients, dialMany(t, ln, late)...)
		seen := make(map[uint32]int)
		for range clients {
			seen[testnet.Receive(t, "a connection", accepted)]++
		}
		for n := range uint32(max(early, late)) {
			if seen[n] != 2 {
				t.Errorf("number %d: got it %d times, want twice, from an early connection and a late one", n, seen[n])
			}
		}
		if err := subs[last].Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
		testnet.Within(t, "waking Accept", accepting.Wait)
	})
}

// TestPerLoopClose closes every listener of a family once, in every order, and then again. Each of
// them must behave as an independent listener.
func TestPerLoopClose(t *testing.T) {
	for first := range 3 {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
			family := append([]*Listener{ln}, perLoop(t, ln)...)
			for i := range family {
				if err := family[(first+i)%len(family)].Close(); err != nil {
					t.Errorf("Close of listener %d, number %d to be closed: got %v, want nil", (first+i)%len(family), i, err)
				}
			}
			for i, ln := range family {
				wantErr(t, fmt.Sprintf("second Close of listener %d", i), ln.Close(), "close", net.ErrClosed)
			}
			for i, ln := range family {
				_, err := ln.Accept()
				wantErr(t, fmt.Sprintf("Accept of listener %d", i), err, "accept", net.ErrClosed)
				subs, err := ln.PerLoop()
				wantErr(t, fmt.Sprintf("PerLoop of listener %d", i), err, "perloop", net.ErrClosed)
				if len(subs) != 0 {
					t.Errorf("PerLoop of listener %d: got %d listeners with the error, want none", i, len(subs))
				}
			}
		})
	}
}

// TestPerLoopRace splits a listener while connections come in and others accept
// from it, and closes it: every client gets its answer or a reset.
func TestPerLoopRace(t *testing.T) {
	testnet.NoLeaks(t)
	for round := range 20 {
		ln := listen(t, ListenConfig{Group: newGroup(t, 2)}, "tcp4", "127.0.0.1:0")
		go serveEcho(ln)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				c, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					return // closed already
				}
				defer c.Close()
				if got, err := roundTrip(c, "hello"); got != "hello" && err == nil {
					t.Errorf("round %d: got %q without an error", round, got)
				} else if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("round %d: a connection was lost", round)
				}
			})
			all.Go(func() {
				subs, err := ln.PerLoop()
				if err != nil && !errors.Is(err, net.ErrClosed) {
					t.Errorf("round %d: PerLoop: %v", round, err)
				}
				for _, sub := range subs {
					go serveEcho(sub)
				}
			})
		}
		all.Go(func() {
			time.Sleep(time.Duration(round%4) * 200 * time.Microsecond)
			ln.Close()
		})
		testnet.Within(t, "a round", all.Wait)
	}
}

// TestPlacement checks which loops new connections go to. They go to the loops in use, unless
// ListenConfig.LeastLoaded says to use all.
func TestPlacement(t *testing.T) {
	forEachShape(t, func(t *testing.T, open func(testing.TB, ListenConfig) *Listener) {
		g := newGroup(t, 3)
		ln := open(t, ListenConfig{Group: g})
		loops := (*engine.Group)(g)
		loads := func() []int {
			loads := make([]int, loops.Len())
			for i := range loads {
				loads[i] = loops.Loop(i).Descriptors()
			}
			return loads
		}
		var conns []*Conn
		for range 30 {
			c, _ := connect(t, ln)
			conns = append(conns, c)
			got := loads()
			if ln.listener.config.LeastLoaded && slices.Max(got)-slices.Min(got) > 1 {
				t.Fatalf("after %d connections: got loads of %v, want them even", len(conns), got)
			}
			if !ln.listener.config.LeastLoaded && got[0] != len(conns) {
				t.Fatalf("after %d connections: got loads of %v, want all on loop 0", len(conns), got)
			}
		}
		if !ln.listener.config.LeastLoaded {
			return
		}
		for _, c := range conns {
			if c.sock.fd.Loop() == loops.Loop(1) {
				c.Close()
			}
		}
		for range 10 {
			if c, _ := connect(t, ln); c.sock.fd.Loop() != loops.Loop(1) {
				t.Errorf("got a connection on another loop, want it on loop 1, which had none; loads: %v", loads())
			}
		}
	})
}

// TestPlacementThread checks that with the strategy Thread the kernel spreads connections over the
// sockets, and so over the loops. A part of the listener has the connections of one loop.
func TestPlacementThread(t *testing.T) {
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.TCP6} {
		t.Run(string(kind), func(t *testing.T) {
			testnet.NoLeaks(t)
			g := newGroupOf(t, loop.Config{Loops: 3, Strategy: loop.Thread})
			loops := (*engine.Group)(g)
			network, address := testnet.Address(t, kind)
			ln := listen(t, ListenConfig{Group: g}, network, address)
			// The chance that a loop gets no connection out of 64 is 1 in 10^11.
			dialMany(t, ln, 64)
			var accepting sync.WaitGroup
			for i, sub := range perLoop(t, ln) {
				accepting.Go(func() {
					for {
						c, err := sub.AcceptConn()
						if err != nil {
							wantErr(t, "Accept", err, "accept", net.ErrClosed)
							return
						}
						t.Cleanup(func() { c.Close() })
						if c.sock.fd.Loop() != loops.Loop(i) {
							t.Errorf("listener %d: got a connection of another loop", i)
						}
					}
				})
			}
			testnet.Eventually(t, "all are accepted", func() bool { return g.Stats().Descriptors == 64 })
			for i := range loops.Len() {
				if loops.Loop(i).Descriptors() == 0 {
					t.Errorf("loop %d: got no connection of 64", i)
				}
			}
			ln.Close()
			testnet.Within(t, "waking Accept", accepting.Wait)
		})
	}
}

// TestCloseDuringAccept closes a listener at the moment it accepts, which also ends the group of
// loops. Accept gets the connection or net.ErrClosed, and there is nothing to report.
func TestCloseDuringAccept(t *testing.T) {
	testnet.NoLeaks(t)
	for round := range 200 {
		lc := ListenConfig{OnAcceptError: func(err error) { t.Errorf("round %d: OnAcceptError was called with %v", round, err) }}
		ln := listen(t, lc, "tcp4", "127.0.0.1:0")
		client, err := net.Dial("tcp4", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				c, err := ln.Accept()
				if err != nil {
					wantErr(t, "Accept", err, "accept", net.ErrClosed)
					return
				}
				if got, want := c.RemoteAddr().String(), client.LocalAddr().String(); got != want {
					t.Errorf("round %d: got a connection from %s, want %s", round, got, want)
				}
				c.Close()
			})
		}
		all.Go(func() { ln.Close() })
		testnet.Within(t, "a round", all.Wait)
		client.Close()
		if got := ln.Stats().Backoffs; got != 0 {
			t.Errorf("round %d: got %d backoffs, want 0", round, got)
		}
	}
}

// TestAcceptAllocs: an Accept allocates the connection, which is two objects, and what makes the garbage
// collector close it. The loop's table grows now and then.
func TestAcceptAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector's sync.Pool allocates: run it without -race")
	}
	testnet.NoLeaks(t)
	const accepts = 100
	l := listen(t, ListenConfig{Group: newGroup(t, 1)}, "tcp4", "127.0.0.1:0")
	for range accepts + 1 { // AllocsPerRun warms up
		peer := testnet.Dial(t, l)
		t.Cleanup(func() { peer.Close() })
	}
	conns := make([]net.Conn, 0, accepts+1)
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	const most = 3
	if n := testing.AllocsPerRun(accepts, func() {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}); n > most {
		t.Errorf("got %v allocations for an Accept, want %d at most", n, most)
	}
}
