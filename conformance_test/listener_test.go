package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// The contract of a listener, which golang.org/x/net/nettest doesn't test: Accept, Close, Addr and
// deadlines, one property per test.

// deadliner is the part of net's listeners that limits how long Accept waits.
type deadliner interface{ SetDeadline(time.Time) error }

// longAgo is a deadline that has passed.
var longAgo = monotime.LongAgo

// acceptOutcome is the result of one call of Accept.
type acceptOutcome struct {
	conn net.Conn
	err  error
}

// goAccept calls Accept on n goroutines and returns the channel for the outcomes.
func goAccept(ln net.Listener, n int) <-chan acceptOutcome {
	outcomes := make(chan acceptOutcome, n)
	for range n {
		go func() {
			conn, err := ln.Accept()
			outcomes <- acceptOutcome{conn, err}
		}()
	}
	return outcomes
}

// letBlock gives goroutines that have just started the time to block in their calls. Tests pass
// either way; without the pause they would mostly test the case that the call comes second.
func letBlock() { time.Sleep(10 * time.Millisecond) }

func TestListenerAddrCanBeDialed(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		network, _ := testnet.Address(t, kind)
		ln := testnet.Listen(t, e.listen, kind)
		addr := ln.Addr()
		switch a := addr.(type) {
		case *net.TCPAddr:
			if !kind.IsTCP() || a.Port == 0 || !a.IP.IsLoopback() {
				t.Errorf("got address %#v for %s", a, kind)
			}
		case *net.UnixAddr:
			if kind.IsTCP() || a.Net != network || a.Name == "" {
				t.Errorf("got address %#v for %s", a, kind)
			}
		default:
			t.Errorf("got address type %T, want net's", a)
		}
		server, client := testnet.Connect(t, ln)
		if got, want := server.LocalAddr().String(), addr.String(); got != want {
			t.Errorf("got local address %s of the accepted connection, want the listener's, %s", got, want)
		}
		if got, want := server.RemoteAddr().String(), client.LocalAddr().String(); kind.IsTCP() && got != want {
			t.Errorf("got remote address %s of the accepted connection, want the client's local one, %s", got, want)
		}
		ln.Close()
		if got := ln.Addr().String(); got != addr.String() {
			t.Errorf("got address %s after Close, want %s as before", got, addr)
		}
	})
}

func TestListenerHandsOutEachConnectionOnce(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		const conns, acceptors = 200, 8
		ln := testnet.Listen(t, e.listen, kind)

		var mu sync.Mutex
		var seen []string
		var wg sync.WaitGroup
		for range acceptors {
			wg.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						if !errors.Is(err, net.ErrClosed) {
							t.Errorf("Accept: got %v, want net.ErrClosed at the end", err)
						}
						return
					}
					wg.Go(func() {
						defer c.Close()
						greeting, err := io.ReadAll(c)
						if err != nil {
							t.Errorf("reading a greeting: %v", err)
						}
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, string(greeting))
					})
				}
			})
		}
		var want []string
		for i := range conns {
			c := testnet.Dial(t, ln)
			greeting := fmt.Sprintf("client %03d", i)
			want = append(want, greeting)
			if _, err := io.WriteString(c, greeting); err != nil {
				t.Errorf("%s: %v", greeting, err)
			}
			c.Close()
		}
		testnet.Eventually(t, "all connections accepted", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(seen) >= conns
		})
		ln.Close()
		testnet.Within(t, "acceptors ending", wg.Wait)
		slices.Sort(seen)
		if !slices.Equal(seen, want) {
			t.Errorf("got %d connections %q, want each of %d exactly once", len(seen), seen, conns)
		}
	})
}

func TestListenerCloseWakesEveryAccept(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		const acceptors = 16
		ln := testnet.Listen(t, e.listen, kind)
		outcomes := goAccept(ln, acceptors)
		letBlock()
		if err := ln.Close(); err != nil {
			t.Errorf("Close: got %v, want nil", err)
		}
		for range acceptors {
			got := testnet.Receive(t, "an Accept woken by Close", outcomes)
			if got.conn != nil || !errors.Is(got.err, net.ErrClosed) {
				t.Errorf("got %v, %v, want net.ErrClosed", got.conn, got.err)
			}
		}
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: got %v, want net.ErrClosed", err)
		}
		if err := ln.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: got %v, want net.ErrClosed", err)
		}
	})
}

func TestListenerConcurrentCloseClosesOnce(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		const closers = 8
		ln := testnet.Listen(t, e.listen, kind)
		errs := make(chan error, closers)
		for range closers {
			go func() { errs <- ln.Close() }()
		}
		succeeded := 0
		for range closers {
			switch err := testnet.Receive(t, "Close", errs); {
			case err == nil:
				succeeded++
			case !errors.Is(err, net.ErrClosed):
				t.Errorf("got %v, want nil or net.ErrClosed", err)
			}
		}
		if succeeded != 1 {
			t.Errorf("got %d calls of Close without an error, want 1", succeeded)
		}
	})
}

func TestListenerCloseRefusesNewConnections(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		ln := testnet.Listen(t, e.listen, kind)
		ln.Close()
		c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err == nil {
			c.Close()
			t.Errorf("got a connection to %v after Close, want none", ln.Addr())
		}
	})
}

// TestListenerAddressIsFreeAfterClose listens again at once on an address where a listener, and
// connections of it, have just been closed.
func TestListenerAddressIsFreeAfterClose(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		network, address := testnet.Address(t, kind)
		for round := range 5 {
			ln, err := e.listen(network, address)
			if err != nil {
				t.Fatalf("round %d: listening on %s: %v", round, address, err)
			}
			address = ln.Addr().String()
			server, client := testnet.Connect(t, ln)
			server.Close() // leaves the server's end in TIME_WAIT
			client.Close()
			ln.Close()
		}
	})
}

func TestListenerConnectionsOutliveIt(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		ln := testnet.Listen(t, e.listen, kind)
		server, client := testnet.Connect(t, ln)
		ln.Close()
		go io.WriteString(client, "ping")
		buf := make([]byte, 4)
		if _, err := io.ReadFull(server, buf); err != nil || string(buf) != "ping" {
			t.Errorf("got %q, %v after the listener's Close, want ping", buf, err)
		}
	})
}

// TestListenerCloseDropsPendingConnections connects without ever calling
// Accept. Whether the kernel or the engine holds the connections, their peers
// must learn that no answer will come.
func TestListenerCloseDropsPendingConnections(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		const conns = 20
		ln := testnet.Listen(t, e.listen, kind)
		var clients []net.Conn
		for range conns {
			clients = append(clients, testnet.Dial(t, ln))
		}
		ln.Close()
		for i, c := range clients {
			testnet.Within(t, fmt.Sprintf("client %d noticing the Close", i), func() {
				if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
					t.Errorf("client %d: got %d bytes, %v, want an end", i, n, err)
				}
			})
		}
	})
}

func TestListenerDeadline(t *testing.T) {
	wantTimeout := func(t *testing.T, when string, got acceptOutcome) {
		t.Helper()
		if got.conn != nil {
			got.conn.Close()
		}
		var netErr net.Error
		if !errors.Is(got.err, os.ErrDeadlineExceeded) || !errors.As(got.err, &netErr) || !netErr.Timeout() {
			t.Errorf("%s: got %v, want os.ErrDeadlineExceeded, a timeout", when, got.err)
		}
	}
	wantConn := func(t *testing.T, when string, got acceptOutcome) {
		t.Helper()
		if got.err != nil {
			t.Errorf("%s: got %v, want a connection", when, got.err)
			return
		}
		got.conn.Close()
	}
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		ln := testnet.Listen(t, e.listen, kind)
		dl, ok := ln.(deadliner)
		if !ok {
			t.Fatalf("%T has no SetDeadline", ln)
		}
		accept := func() acceptOutcome {
			return testnet.Receive(t, "Accept with a deadline", goAccept(ln, 1))
		}

		dl.SetDeadline(longAgo)
		wantTimeout(t, "deadline in the past", accept())
		wantTimeout(t, "deadline in the past, again", accept())

		dl.SetDeadline(time.Now().Add(10 * time.Millisecond))
		wantTimeout(t, "deadline in the near future", accept())

		dl.SetDeadline(time.Time{})
		outcomes := goAccept(ln, 3)
		letBlock()
		dl.SetDeadline(longAgo)
		for range 3 {
			wantTimeout(t, "deadline set while blocked", testnet.Receive(t, "Accept", outcomes))
		}

		dl.SetDeadline(time.Now().Add(time.Hour))
		testnet.Dial(t, ln)
		wantConn(t, "deadline in the far future", accept())

		dl.SetDeadline(longAgo)
		testnet.Dial(t, ln)
		letBlock() // lets the engine accept the connection
		wantTimeout(t, "deadline in the past with a connection waiting", accept())
		dl.SetDeadline(time.Time{})
		wantConn(t, "deadline cleared, with a connection waiting", accept())
	})
}

// TestListenerServesPortsOfBothFamilies checks that an empty host means both IPv4 and IPv6, with
// any number of sockets that the engine opens for it.
func TestListenerServesPortsOfBothFamilies(t *testing.T) {
	if !testnet.HasIPv6() {
		t.Skip("this machine has no IPv6 loopback address")
	}
	onEachEngine(t, func(t *testing.T, e engine) {
		ln, err := e.listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatalf("listener's address: %v", err)
		}
		// Do it often enough to meet every socket that shares the port.
		for i := range 32 {
			host := []string{"127.0.0.1", "::1"}[i%2]
			outcome := goAccept(ln, 1)
			c, err := net.Dial("tcp", net.JoinHostPort(host, port))
			if err != nil {
				t.Fatalf("dialing %s: %v", host, err)
			}
			got := testnet.Receive(t, "Accept", outcome)
			if got.err != nil {
				t.Fatalf("accepting from %s: %v", host, got.err)
			}
			if remote := got.conn.RemoteAddr().String(); remote != c.LocalAddr().String() {
				t.Errorf("got remote address %s, want %s", remote, c.LocalAddr())
			}
			got.conn.Close()
			c.Close()
		}
	})
}

// TestListenerUnixPath checks when the file of a unix socket is made and removed.
func TestListenerUnixPath(t *testing.T) {
	onEachEngine(t, func(t *testing.T, e engine) {
		network, path := testnet.Address(t, testnet.Unix)
		exists := func() bool {
			_, err := os.Lstat(path)
			return err == nil
		}
		ln, err := e.listen(network, path)
		if err != nil {
			t.Fatal(err)
		}
		if !exists() {
			t.Errorf("got no file at %s while listening", path)
		}
		ln.Close()
		if exists() {
			t.Errorf("got a file left at %s after Close", path)
		}
		// A second Close must not remove a file that another listener has made since.
		other, err := net.Listen(network, path)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		ln.Close()
		if !exists() {
			t.Errorf("second Close removed the file of another listener")
		}
	})
}

func TestListenerBusyAddress(t *testing.T) {
	onEachEngineAndKind(t, func(t *testing.T, e engine, kind testnet.Kind) {
		for _, first := range engines {
			ln := testnet.Listen(t, first.listen, kind)
			second, err := e.listen(ln.Addr().Network(), ln.Addr().String())
			if err == nil {
				second.Close()
				t.Errorf("got a second listener on %v, held by %s", ln.Addr(), first.name)
			} else if !strings.Contains(err.Error(), "address already in use") {
				t.Errorf("got %v, want address already in use", err)
			}
		}
	})
}
