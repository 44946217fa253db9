package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// startTunnel starts both ends and returns the near one's listener. The far end may connect to allow.
func startTunnel(t *testing.T, allow, to string) net.Listener {
	far := testnet.Listen(t, percore.Listen, testnet.TCP4)
	near := testnet.Listen(t, percore.Listen, testnet.TCP4)
	server, client := newFarEnd([]string{allow}), newNearEnd(far.Addr().String(), to)
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(far) }()
	go func() { ended <- client.serve(near) }()
	t.Cleanup(func() {
		near.Close()
		if err := server.Shutdown(t.Context()); err != nil {
			server.Close()
		}
		client.client.CloseIdleConnections()
		for range 2 {
			testnet.Receive(t, "an end's return", ended)
		}
	})
	return near
}

// startEcho serves connections that get all bytes back behind a prefix, once they have sent the last.
func startEcho(t *testing.T) net.Listener {
	ln := testnet.Listen(t, net.Listen, testnet.TCP4)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				sent, _ := io.ReadAll(c)
				c.Write(append([]byte("you said: "), sent...))
			}()
		}
	}()
	return ln
}

// TestTunnel sends short and long streams at the same time. All go over one connection.
func TestTunnel(t *testing.T) {
	echo := startEcho(t)
	near := startTunnel(t, echo.Addr().String(), echo.Addr().String())
	ask := func(question []byte) {
		c := testnet.Dial(t, near)
		if _, err := c.Write(question); err != nil {
			t.Error(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		answer, err := io.ReadAll(c)
		if want := append([]byte("you said: "), question...); err != nil || !bytes.Equal(answer, want) {
			t.Errorf("got %d bytes, %v, want %d", len(answer), err, len(want))
		}
	}
	// connections are those between the two ends: the near one has accepted the streams.
	connections := func() uint64 {
		open := percore.ReadStats().Listeners
		if len(open) != 2 { // off Linux
			return 1
		}
		return min(open[0].Accepted, open[1].Accepted)
	}
	// The transport shares a connection a moment after the first answer.
	testnet.Eventually(t, "shared connection", func() bool {
		n := connections()
		ask([]byte("hello"))
		return n > 0 && connections() == n
	})
	want := connections()
	var all sync.WaitGroup
	for n := range 50 {
		all.Go(func() { ask(bytes.Repeat(fmt.Appendf(nil, "%d ", n), 1<<(n%18))) })
	}
	all.Wait()
	if got := connections(); got != want {
		t.Errorf("got %d connections, want no other for the streams than the %d before", got, want)
	}
}

// TestForbidden: the far end connects only where it may.
func TestForbidden(t *testing.T) {
	echo := startEcho(t)
	near := startTunnel(t, "other.example:80", echo.Addr().String())
	c := testnet.Dial(t, near)
	if answer, err := io.ReadAll(c); err != nil || len(answer) > 0 {
		t.Errorf("got %q, %v, want the end", answer, err)
	}
}

// TestUnreachable: a stream whose target can't be reached ends, and others don't.
func TestUnreachable(t *testing.T) {
	// A client's port refuses connections, and no other program can get it.
	address := testnet.Dial(t, testnet.Listen(t, net.Listen, testnet.TCP4)).LocalAddr().String()
	c := testnet.Dial(t, startTunnel(t, address, address))
	if answer, err := io.ReadAll(c); err != nil || len(answer) > 0 {
		t.Errorf("got %q, %v, want the end", answer, err)
	}
}

// Without -to the program says so at once, and not to each client.
func TestMissingTo(t *testing.T) {
	if err := newNearEnd("localhost:9000", "").serve(testnet.Listen(t, percore.Listen, testnet.TCP4)); err == nil || !strings.Contains(err.Error(), "-to") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
