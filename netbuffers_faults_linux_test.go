//go:build percore_faults && !percore_net

package percore

import (
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// If there is no room for a connection's second descriptor, the connection is not lost. Accept
// waits for room, and Close ends the wait.
func TestNetBuffersWithoutDescriptors(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		testnet.NoLeaks(t)
		var reports, calls atomic.Int32
		lc := ListenConfig{NetBuffers: true, Group: newGroup(t, 2), OnAcceptError: func(error) { reports.Add(1) }}
		ln := listen(t, lc, "tcp4", "127.0.0.1:0")
		restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
			if op.String() == "fcntl" && (calls.Add(1) <= 3 || !recovers) {
				return unix.EMFILE
			}
			return 0
		})
		defer restore()
		peer := testnet.Dial(t, ln)
		outcome := make(chan takenConn, 1)
		go func() {
			c, err := ln.Accept()
			outcome <- takenConn{c, err}
		}()
		testnet.Eventually(t, "three attempts", func() bool { return calls.Load() >= 3 })
		if !recovers {
			ln.Close()
		}
		a := testnet.Receive(t, "Accept", outcome)
		if !recovers {
			wantErr(t, "Accept", a.err, "accept", net.ErrClosed)
			if _, err := peer.Read(make([]byte, 1)); err == nil {
				t.Error("the connection that was waiting is still there")
			}
			continue
		}
		if a.err != nil {
			t.Fatalf("Accept: got %v, want the connection", a.err)
		}
		a.c.Close()
		testnet.Eventually(t, "the report", func() bool { return reports.Load() == 1 })
	}
}

// A connection that waits for its second descriptor does not wait for other calls of Accept, to which
// no client comes.
func TestNetBuffersWithoutDescriptorBesideAccept(t *testing.T) {
	const accepts = 3
	testnet.NoLeaks(t)
	lc := ListenConfig{NetBuffers: true, Group: newGroup(t, 1), OnAcceptError: func(error) {}}
	ln := listen(t, lc, "tcp4", "127.0.0.1:0")
	outcome := make(chan takenConn, accepts)
	for range accepts {
		go func() {
			c, err := ln.Accept()
			outcome <- takenConn{c, err}
		}()
	}
	testnet.Eventually(t, "all calls of Accept", func() bool { return ln.listener.all.waiting.Load() == accepts })
	var failed atomic.Bool
	restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if op.String() == "fcntl" && !failed.Swap(true) {
			return unix.EMFILE
		}
		return 0
	})
	defer restore()
	testnet.Dial(t, ln)
	a := testnet.Receive(t, "Accept", outcome)
	if a.err != nil || !failed.Load() {
		t.Fatalf("Accept: got %v, after a failure: %t, want the connection, after one", a.err, failed.Load())
	}
	a.c.Close()
	ln.Close()
	for range accepts - 1 {
		wantErr(t, "Accept", testnet.Receive(t, "Accept", outcome).err, "accept", net.ErrClosed)
	}
}
