//go:build percore_faults && !percore_net

package percore

import (
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestDialFaults fails each of our system calls during a Dial, with each errno that its man page
// lists, one at a time. Either Dial returns the error, as package net would, or the connection
// works. Nothing may be left behind, and if Dial fails the peer sees the connection close.
// TestFaultSweep tests the rest of a connection's life.
func TestDialFaults(t *testing.T) {
	for _, network := range []string{"tcp4", "unix"} {
		for _, group := range []string{"default group", "running group"} {
			t.Run(network+"/"+group, func(t *testing.T) {
				testnet.NoLeaks(t)
				kind := testnet.Kind(network)
				if network == "unix" {
					kind = testnet.Abstract
				}
				ln := testnet.Listen(t, openNet, kind)
				var d Dialer
				needed := []string{"fcntl", "getsockopt", "epoll_ctl"}
				if group == "running group" {
					d.Group = newGroup(t, 2)
				} else {
					needed = append(needed, "epoll_create1", "eventfd2")
				}
				ordeal := &dialOrdeal{TB: t, dialer: &d, ln: ln, fds: testnet.CountFDs(), goroutines: runtime.NumGoroutine()}
				_, complaints := ordeal.dial("", 0, 0) // lets packages set up their permanent state
				if left := ordeal.settle(); left != "" || len(complaints) != 0 {
					t.Fatalf("without a fault: %s; %s", strings.Join(complaints, "; "), left)
				}
				for _, op := range slices.Sorted(maps.Keys(errnosOf)) {
					if *faultOp != "" && *faultOp != op {
						continue
					}
					hits := ordeal.sweep(op)
					if hits == 0 && slices.Contains(needed, op) && *faultErrno == "" && *faultN == 0 {
						t.Errorf("no %s was made to fail: does dialing not need it any more?", op)
					}
				}
			})
		}
	}
}

// dialOrdeal is a Dialer whose system calls fail.
type dialOrdeal struct {
	testing.TB
	dialer          *Dialer
	ln              net.Listener
	fds, goroutines int // of the process at rest
}

// sweep fails each call of op that a Dial makes, and returns how many calls failed.
func (o *dialOrdeal) sweep(op string) (hits int) {
	o.Helper()
	return sweepFaults(op, errnosOf[op], func(n int64, errno syscall.Errno) (reached, hit bool) {
		hit, complaints := o.dial(op, n, errno)
		if left := o.settle(); left != "" {
			complaints = append(complaints, left)
		}
		if len(complaints) != 0 {
			o.Fatalf("%s number %d of a Dial fails with %s: %s%s",
				op, n, unix.ErrnoName(errno), strings.Join(complaints, "; "), playAgain(o, op, n, errno))
		}
		return hit, hit
	})
}

// dial dials once, with the n-th call of op failing, and uses the connection if
// there is one. It reports whether there was such a call.
func (o *dialOrdeal) dial(op string, n int64, errno syscall.Errno) (hit bool, complaints []string) {
	o.Helper()
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := o.ln.Accept()
		if err != nil {
			o.Errorf("Accept: %v", err)
		}
		accepted <- c
	}()
	var calls atomic.Int64
	restore := sys.Inject(func(called sys.Op, _ int) syscall.Errno {
		if called.String() != op || calls.Add(1) != n {
			return 0
		}
		return errno
	})
	var c net.Conn
	var err error
	testnet.Within(o, "Dial", func() { c, err = o.dialer.Dial(o.ln.Addr().Network(), o.ln.Addr().String()) })
	restore()
	hit = calls.Load() >= n && n > 0
	peer := testnet.Receive(o, "Accept", accepted) // package net has connected anyway
	if peer == nil {
		return hit, complaints
	}
	defer peer.Close()

	if err != nil {
		if c != nil {
			complain("got the connection %v besides the error", c)
		}
		if !hit || mayFail(op) {
			complain("got %v, want a connection", err)
		}
		complaints = append(complaints, complaintsAbout(err, "dial", &fault{op: op, errno: errno})...)
		if err := awaitEnd(peer); err != nil {
			complain("the peer: got %v, want the end of the stream", err)
		}
		return hit, complaints
	}
	defer c.Close()
	if hit && !mayFail(op) {
		complain("got a connection, want an error")
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		b := make([]byte, 5)
		n, _ := peer.Read(b)
		peer.Write(b[:n])
	}()
	if got, err := roundTrip(c, "hello"); got != "hello" || err != nil {
		complain("echo: got %q, %v", got, err)
	}
	testnet.Receive(o, "the peer's echo", echoed)
	if c.LocalAddr() == nil || c.RemoteAddr() == nil || c.RemoteAddr().String() != o.ln.Addr().String() {
		complain("got the addresses %v and %v, want both, and that of %v", c.LocalAddr(), c.RemoteAddr(), o.ln.Addr())
	}
	return hit, complaints
}

// mayFail reports whether dialing can do without a call that fails. It queries the socket's
// protocol only to be cheaper with TCP, and the loops continue with any result.
func mayFail(op string) bool {
	return !slices.Contains([]string{"fcntl", "epoll_create1", "epoll_ctl", "eventfd2"}, op)
}

// settle waits until everything that a connection needed has ended.
func (o *dialOrdeal) settle() string {
	if o.dialer.Group == nil {
		return settle(o.fds, o.goroutines)
	}
	testnet.Eventually(o, "nothing is left of the connection", func() bool {
		return testnet.CountFDs() <= o.fds && runtime.NumGoroutine() <= o.goroutines && o.dialer.Group.Stats().Descriptors == 0
	})
	return ""
}
