//go:build percore_faults && !percore_net

package grpcadapter

import (
	"io"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestUserTimeoutCostsNothing counts the system calls of an accepted connection that has
// TCP_USER_TIMEOUT, in a build that can count them. Each message takes one recv. So the reader
// still relies on short reads, and setting the option did not expose the descriptor.
func TestUserTimeoutCostsNothing(t *testing.T) {
	testnet.NoLeaks(t)
	lis := listenOnLoops(t, 1, testnet.TCP4)
	if left := userTimeout(pingTimeout).ofListener(lis).left.Load(); left != 0 {
		t.Fatalf("the option has to be set on %d connections, want none", left)
	}
	var counts [256]atomic.Int32 // by Op
	restore := sys.Inject(func(op sys.Op, _ int) syscall.Errno {
		counts[op].Add(1)
		return 0
	})
	defer restore()
	c, client := testnet.Connect(t, lis)
	const messages = 10
	read := make(chan error, 1)
	for range messages {
		testnet.GoBlocked(t, "Read", func() {
			_, err := c.Read(make([]byte, 100))
			read <- err
		})
		if _, err := io.WriteString(client, "message"); err != nil {
			t.Fatal(err)
		}
		if err := testnet.Receive(t, "Read", read); err != nil {
			t.Fatal(err)
		}
	}
	for op, want := range map[sys.Op]int32{
		sys.OpRead:       messages,
		sys.OpGetsockopt: 0,
		sys.OpEpollCtl:   1, // to register it
	} {
		if got := counts[op].Load(); got != want {
			t.Errorf("%v: got %d calls, want %d", op, got, want)
		}
	}
	c.Close()
	if got := counts[sys.OpEpollCtl].Load(); got != 1 {
		t.Errorf("epoll_ctl: got %d calls after Close, want 1: the descriptor was not exposed", got)
	}
}
