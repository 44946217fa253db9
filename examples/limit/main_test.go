package main

import (
	"net"
	"net/http"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// start serves with limits until the test ends.
func start(t *testing.T, total, each int) *percore.Listener {
	ln, err := limited(total, each).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer()
	done := make(chan error, 1)
	go func() { done <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		if err := testnet.Receive(t, "the server's end", done); err != http.ErrServerClosed {
			t.Errorf("got %v, want %v", err, http.ErrServerClosed)
		}
	})
	return ln.(*percore.Listener)
}

func served(t *testing.T, c net.Conn) {
	t.Helper()
	if got := testnet.KeepAlive(t, c)("/"); got != "hello\n" {
		t.Errorf("got %q, want hello", got)
	}
}

func TestLimitPerAddress(t *testing.T) {
	ln := start(t, 100, 2)
	first, second := testnet.Dial(t, ln), testnet.Dial(t, ln)
	served(t, first)
	served(t, second)

	third := testnet.Dial(t, ln)
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("got %d bytes on a third connection, want its end", n)
	}
	if got := ln.Stats().Refused; got != 1 {
		t.Errorf("got %d refused, want 1", got)
	}

	first.Close()
	testnet.Eventually(t, "the first connection's end", func() bool { return ln.Stats().Conns == 1 })
	served(t, testnet.Dial(t, ln))
}

func TestLimit(t *testing.T) {
	ln := start(t, 1, 2)
	first := testnet.Dial(t, ln)
	served(t, first)
	second := testnet.Dial(t, ln)
	testnet.Eventually(t, "the wait at the limit", func() bool { return ln.Stats().LimitWaits > 0 })
	first.Close()
	served(t, second)
}
