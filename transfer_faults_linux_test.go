//go:build percore_faults && !percore_net

package percore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/features"
	"github.com/percore/percore/internal/pipes"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// TestTransferFaults copies with io.Copy, over every sort of route, while one
// system call fails: the N-th of its kind, for every N, with each errno that its
// man page lists, and those that the sockets add. There are three outcomes:
//
//	nothing     the call is made again
//	a copy      the kernel refuses: all bytes arrive, once, the rest by reading and
//	            writing
//	an error    with the errno, and a count of the bytes that arrived
//
// Nothing hangs, nothing leaks, and the received bytes are a prefix of the bytes sent.

// transferErrnos lists the errors of the calls that only transfers make. For a transfer's other
// calls see TestFaultSweep.
var transferErrnos = map[string][]syscall.Errno{
	"sendfile": {
		unix.EAGAIN, unix.EBADF, unix.EFAULT, unix.EINVAL, unix.EIO, unix.ENOMEM, unix.EOVERFLOW, unix.ESPIPE, unix.EINTR,
		unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM, unix.EPIPE, unix.ECONNRESET, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.ENOBUFS,
	},
	"splice": {
		unix.EAGAIN, unix.EBADF, unix.EINVAL, unix.ENOMEM, unix.ESPIPE, unix.EINTR, unix.ENOSYS, unix.EOPNOTSUPP, unix.EPERM,
		unix.EOVERFLOW, unix.EPIPE, unix.ECONNRESET, unix.ETIMEDOUT, unix.EHOSTUNREACH, unix.EIO, unix.ENOSPC,
	},
	"pipe2":      {unix.EFAULT, unix.EINVAL, unix.EMFILE, unix.ENFILE, unix.ENOPKG},
	"fcntl":      {unix.EPERM, unix.EBUSY, unix.EINVAL, unix.EBADF, unix.ENOMEM},
	"fstat":      {unix.EBADF, unix.EFAULT, unix.ENOMEM, unix.EOVERFLOW, unix.EIO},
	"getsockopt": {unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOPROTOOPT, unix.ENOTSOCK},
}

// A transferRoute is a way for bytes to go, which it makes anew each time. Its
// descriptors are -1 where EAGAIN can't be brought about.
type transferRoute struct {
	name string
	ops  []string // that it must use
	open func(t *testing.T, data []byte) *openRoute
}

type openRoute struct {
	from        io.Reader
	to          io.WriteCloser
	received    func() []byte // after to was closed
	src, dst    int
	closeSource func()
}

// sysfd returns a connection's descriptor without exposing it.
func (c *Conn) sysfd() (fd int) {
	c.sock.fd.Control(func(n int) syscall.Errno { fd = n; return 0 })
	return fd
}

var transferRoutes = []transferRoute{
	{"from a file to TCP", []string{"sendfile"}, func(t *testing.T, data []byte) *openRoute {
		c, peer := accepted(t, testnet.TCP4)
		f := testnet.TempFile(t, data)
		return &openRoute{from: f, to: c, received: receiving(peer), src: -1, dst: c.sysfd(), closeSource: func() { f.Close() }}
	}},
	{"from TCP to TCP", []string{"splice", "pipe2", "fcntl"}, func(t *testing.T, data []byte) *openRoute {
		from, feeder := accepted(t, testnet.TCP4)
		to, peer := accepted(t, testnet.TCP4)
		feed(feeder, data)
		return &openRoute{from: from, to: to, received: receiving(peer), src: from.sysfd(), dst: to.sysfd(), closeSource: func() { from.Close() }}
	}},
	{"from unix to net's TCP", []string{"splice", "fstat", "getsockopt", "fcntl"}, func(t *testing.T, data []byte) *openRoute {
		from, feeder := accepted(t, testnet.Unix)
		to, peer := testnet.Pair(t, net.Listen, testnet.TCP4)
		feed(feeder, data)
		fd := -1
		raw, err := to.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(n uintptr) { fd = int(n) })
		return &openRoute{from: from, to: to, received: receiving(peer), src: -1, dst: fd, closeSource: func() { from.Close() }}
	}},
	{"from a pipe to unix", []string{"splice", "fstat", "fcntl"}, func(t *testing.T, data []byte) *openRoute {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		to, peer := accepted(t, testnet.Unix)
		feed(w, data)
		return &openRoute{from: r, to: to, received: receiving(peer), src: -1, dst: to.sysfd(), closeSource: func() { r.Close() }}
	}},
	{"from TCP to a file", []string{"splice", "fstat", "fcntl"}, func(t *testing.T, data []byte) *openRoute {
		from, feeder := accepted(t, testnet.TCP4)
		f := testnet.TempFile(t, nil)
		feed(feeder, data)
		return &openRoute{from: from, to: f, src: from.sysfd(), dst: -1, closeSource: func() { from.Close() }, received: func() []byte {
			got, _ := os.ReadFile(f.Name())
			return got
		}}
	}},
}

func TestTransferFaults(t *testing.T) {
	data := noise(100_000)
	for _, route := range transferRoutes {
		t.Run(route.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			for _, op := range route.ops {
				hits := sweepFaults(op, transferErrnos[op], func(n int64, errno syscall.Errno) (reached, hit bool) {
					t.Run(fmt.Sprintf("%s %d %s", op, n, unix.ErrnoName(errno)), func(t *testing.T) {
						reached, hit = transferWithFault(t, route, data, op, n, errno)
					})
					return reached, hit
				})
				if hits == 0 {
					t.Errorf("no %s was made to fail: does the route not need it any more?", op)
				}
			}
		})
	}
}

// transferWithFault plays one transfer. It reports whether there was an n-th call of op, and whether
// that failed.
func transferWithFault(t *testing.T, route transferRoute, data []byte, op string, n int64, errno syscall.Errno) (reached, hit bool) {
	defer features.Sendfile.Force(true)() // ENOSYS turns them off for good
	defer features.Splice.Force(true)()
	pipes.Drain() // so that one has to be made
	r := route.open(t, data)
	var count atomic.Int64
	var failed atomic.Bool
	restore := sys.Inject(func(called sys.Op, fd int) syscall.Errno {
		if called.String() != op || count.Add(1) != n {
			return 0
		}
		if errno == unix.EAGAIN && !r.bringAboutEAGAIN(op, fd) {
			return 0
		}
		failed.Store(true)
		return errno
	})
	var written int64
	var err error
	testnet.Within(t, "the copy", func() { written, err = io.Copy(r.to, r.from) })
	restore()
	r.to.Close()
	r.closeSource()
	received := r.received()
	reached, hit = count.Load() >= n, failed.Load()
	if int64(len(received)) != written || !bytes.HasPrefix(data, received) {
		t.Errorf("got a count of %d and %d bytes received, the first ones: %t, want them to agree", written, len(received), bytes.HasPrefix(data, received))
	}
	switch {
	case hit && transferFails(op, errno):
		if !errors.Is(err, errno) {
			t.Errorf("got %v, want %v", err, errno)
		}
	case err != nil || len(received) != len(data):
		t.Errorf("hit %t: got %d of %d bytes, %v, want all, by copying if need be", hit, len(received), len(data), err)
	}
	for name, feature := range map[string]*features.Feature{"sendfile": features.Sendfile, "splice": features.Splice} {
		if want := !hit || op != name || errno != unix.ENOSYS; feature.On() != want {
			t.Errorf("%s afterwards: got on %t, want %t: a kernel that lacks it need not be asked again", name, feature.On(), want)
		}
	}
	wantNoPipes(t)
	return reached, hit
}

// transferFails reports whether a transfer fails if a call does. Everything else
// comes down to copying, or to another try.
func transferFails(op string, errno syscall.Errno) bool {
	if op != "sendfile" && op != "splice" {
		return false
	}
	switch errno {
	case unix.EINTR, unix.EAGAIN, unix.ENOSYS, unix.EPERM, unix.EINVAL, unix.EOPNOTSUPP, unix.EOVERFLOW:
		return false
	}
	return true
}

// bringAboutEAGAIN makes an injected EAGAIN true: the kernel promises an event after it. It returns
// false if it can't: see session.spuriousEAGAIN.
func (r *openRoute) bringAboutEAGAIN(op string, fd int) bool {
	switch {
	case op == "splice" && fd == r.src:
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) == nil
	case r.dst < 0, op == "splice" && r.src < 0: // a file does not say EAGAIN; which end it is isn't known
		return false
	}
	return unix.SetsockoptInt(r.dst, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10) == nil
}

// wantNoPipes waits until no pipe is lent.
func wantNoPipes(t *testing.T) {
	t.Helper()
	testnet.Eventually(t, "no pipe is lent any more", func() bool {
		s := ReadStats().ZeroCopy
		return s.PipesOpen == s.PipesIdle
	})
}

// TestUnloadFaults makes the destination refuse splice when there are already bytes in the pipe.
// Then one of the calls fails that take them out of it.
func TestUnloadFaults(t *testing.T) {
	data := noise(1 << 20)
	route := transferRoutes[1]
	for _, op := range []sys.Op{sys.OpRead, sys.OpWrite} {
		for _, errno := range []syscall.Errno{0, unix.EINTR, unix.EIO} {
			t.Run(fmt.Sprintf("%s %s", op, unix.ErrnoName(errno)), func(t *testing.T) {
				testnet.NoLeaks(t)
				r := route.open(t, data)
				// Make writes take only a part, so that the rest has to wait.
				if err := r.to.(*Conn).SetWriteBuffer(4 << 10); err != nil {
					t.Fatal(err)
				}
				var refused, failed atomic.Bool
				restore := sys.Inject(func(called sys.Op, fd int) syscall.Errno {
					switch {
					case called == sys.OpSplice && fd != r.src && refused.CompareAndSwap(false, true):
						return unix.EINVAL
					case called == op && refused.Load() && failed.CompareAndSwap(false, true):
						return errno
					}
					return 0
				})
				var written int64
				var err error
				testnet.Within(t, "the copy", func() { written, err = io.Copy(r.to, r.from) })
				restore()
				r.to.Close()
				r.closeSource()
				received := r.received()
				if !failed.Load() {
					t.Fatalf("no %s was made", op)
				}
				if int64(len(received)) != written || !bytes.HasPrefix(data, received) {
					t.Errorf("got a count of %d and %d bytes received, the first ones: %t, want them to agree", written, len(received), bytes.HasPrefix(data, received))
				}
				if want := errno == unix.EIO; want != (err != nil) || want != errors.Is(err, unix.EIO) || !want && len(received) != len(data) {
					t.Errorf("got %d of %d bytes, %v, want failure %t", len(received), len(data), err, want)
				}
			})
		}
	}
}

// TestSmallMessageFaults makes the calls fail that copy small messages.
func TestSmallMessageFaults(t *testing.T) {
	const messages, size = 40, 100
	data := noise(messages * size)
	for _, op := range []sys.Op{sys.OpRead, sys.OpWrite} {
		for _, errno := range []syscall.Errno{unix.EINTR, unix.ENOTSOCK, unix.ECONNRESET, unix.ENOMEM, unix.EPIPE} {
			for nth := range int64(3) {
				t.Run(fmt.Sprintf("%s %d %s", op, nth, unix.ErrnoName(errno)), func(t *testing.T) {
					testnet.NoLeaks(t)
					from, feeder := accepted(t, testnet.TCP4)
					to, peer := accepted(t, testnet.TCP4)
					received := make(chan []byte, 1)
					go func() { // a message at a time, until one doesn't arrive
						var got []byte
						for i := range messages {
							_, _ = feeder.Write(data[i*size:][:size])
							p := make([]byte, size)
							n, err := io.ReadFull(peer, p)
							if got = append(got, p[:n]...); err != nil {
								break
							}
						}
						feeder.Close()
						received <- got
					}()
					fd := map[sys.Op]int{sys.OpRead: from.sysfd(), sys.OpWrite: to.sysfd()}[op]
					var calls atomic.Int64
					restore := sys.Inject(func(called sys.Op, on int) syscall.Errno {
						if called == op && on == fd && calls.Add(1) == nth+1 {
							return errno
						}
						return 0
					})
					var written int64
					var err error
					testnet.Within(t, "the copy", func() { written, err = io.Copy(to, from) })
					restore()
					to.Close()
					from.Close()
					got := testnet.Receive(t, "what arrived", received)
					if calls.Load() <= nth {
						t.Fatalf("%d calls of %s were made, want more: small messages are copied", calls.Load(), op)
					}
					if int64(len(got)) != written || !bytes.HasPrefix(data, got) {
						t.Errorf("got a count of %d and %d bytes received, the first ones: %t, want them to agree", written, len(got), bytes.HasPrefix(data, got))
					}
					if fails := errno != unix.EINTR && errno != unix.ENOTSOCK; fails != errors.Is(err, errno) || !fails && (err != nil || len(got) != len(data)) {
						t.Errorf("got %d of %d bytes, %v, want failure %t", len(got), len(data), err, fails)
					}
				})
			}
		}
	}
}
