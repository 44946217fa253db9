package grpcadapter

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestWithDialer: a client dials its connections with the dialer that it was given.
func TestWithDialer(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, listenAdapted, testnet.TCP4)
	startServer(t, plainServe, lis)
	var dialed atomic.Int64
	cc := dialServer(t, lis, DialOptions(WithDialer(&percore.Dialer{
		ControlContext: func(context.Context, string, string, syscall.RawConn) error {
			dialed.Add(1)
			return nil
		},
	}))...)
	if err := callUnary(callContext(t), cc, pattern(100)); err != nil {
		t.Fatal(err)
	}
	if got := dialed.Load(); got != 1 {
		t.Errorf("the dialer made %d connections, want 1", got)
	}
}

// TestDialFails: a client gets the same reason why it can't connect as on package net.
func TestDialFails(t *testing.T) {
	gone := testnet.Listen(t, net.Listen, testnet.Unix)
	gone.Close()
	_, got := newDialing(nil).dial(callContext(t), "unix://"+gone.Addr().String())
	_, want := net.Dial("unix", gone.Addr().String())
	if got == nil || got.Error() != want.Error() {
		t.Errorf("got %v, want net's %v", got, want)
	}
}
