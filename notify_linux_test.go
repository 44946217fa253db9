//go:build !percore_net

package percore

import (
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
)

// notified is a ReadableHandler that passes on what it is told.
type notified chan error

func (n notified) OnReadable(err error) { n <- err }

func TestNotifyReadable(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.Pair(t, Listen, testnet.TCP4)
	c := server.(*Conn)
	local, remote := c.LocalAddr().String(), c.RemoteAddr().String()
	n := make(notified, 1)
	if err := c.NotifyReadable(n); err != nil {
		t.Fatalf("NotifyReadable: %v", err)
	}
	if err := c.NotifyReadable(n); !errors.Is(err, loop.ErrArmed) {
		t.Errorf("NotifyReadable while armed: got %v, want %v", err, loop.ErrArmed)
	}
	if got := c.LocalAddr().String(); got != local || got != client.RemoteAddr().String() {
		t.Errorf("while armed: got local address %s, want %s", got, local)
	}
	if got := c.RemoteAddr().String(); got != remote {
		t.Errorf("while armed: got remote address %s, want %s", got, remote)
	}
	client.Write([]byte("x"))
	if err := testnet.Receive(t, "the callback", n); err != nil {
		t.Errorf("the callback: got %v, want nil", err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("Read: %v", err)
	}
	if err := c.NotifyReadable(n); err != nil {
		t.Fatalf("NotifyReadable again: %v", err)
	}
	c.Close()
	if err := testnet.Receive(t, "the callback", n); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the callback after Close: got %v, want net.ErrClosed", err)
	}
	if err := c.NotifyReadable(n); !errors.Is(err, net.ErrClosed) {
		t.Errorf("NotifyReadable after Close: got %v, want net.ErrClosed", err)
	}
	if got := c.LocalAddr().String(); got != local {
		t.Errorf("after Close: got local address %s, want %s", got, local)
	}
}

// TestAddrsSurvive asks for addresses while they are forgotten and the connection
// is closed: they must always be there.
func TestAddrsSurvive(t *testing.T) {
	testnet.NoLeaks(t)
	ln := testnet.Listen(t, Listen, testnet.TCP4)
	for range 200 {
		server, client := testnet.Connect(t, ln)
		c := server.(*Conn)
		var wg sync.WaitGroup
		wg.Go(func() {
			n := make(notified, 1)
			for c.NotifyReadable(n) == nil && c.CancelOnReadable() {
			}
		})
		wg.Go(func() {
			for range 20 {
				if got := c.LocalAddr(); got == nil || got.String() != client.RemoteAddr().String() {
					t.Errorf("got local address %v, want %v", got, client.RemoteAddr())
					return
				}
			}
		})
		wg.Go(func() { c.Close() })
		testnet.Within(t, "all three", wg.Wait)
		client.Close()
	}
}
