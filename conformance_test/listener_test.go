package conformance

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/testnet"
)

// Promises of a listener that the scripts of TestDiffAccept and TestDiffListenBusy leave out.

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
