package httpadapter

import (
	"context"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// listenWith gives the fixture a listener with lc's options.
func (f *fixture) listenWith(lc percore.ListenConfig) {
	f.Helper()
	f.ln.Close()
	ln, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.ln = ln
}

// TestMaxConns lets as many connections as may be open wait for a request. They are parked, and the
// next client is served when one of them ends.
func TestMaxConns(t *testing.T) {
	needParking(t)
	f := start(t, echoPath, func(f *fixture) { f.listenWith(percore.ListenConfig{MaxConns: 2}) })
	open := func() int { return f.ln.(*percore.Listener).Stats().Conns }
	first, second := f.dial(), f.dial()
	first.get("/1")
	second.get("/2")
	f.awaitParked(2)
	third := f.dial()
	third.send(request("/3"))
	if n := open(); n != 2 {
		t.Errorf("got %d open, want 2", n)
	}
	first.Close()
	if got := third.answer(); got != "/3" {
		t.Errorf("got %q, want /3", got)
	}
	f.awaitParked(2)
	f.shutdown()
	testnet.Eventually(t, "no connection counts", func() bool { return open() == 0 })
}
