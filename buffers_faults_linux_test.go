//go:build percore_faults && !percore_net

package percore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// bufferErrnos lists what the man page of each call that WriteBuffers, WriteBuffer,
// ReadBuffer, and Close afterwards, make says that it can fail with.
var bufferErrnos = map[string][]syscall.Errno{
	"read":       errnosOf["read"],
	"writev":     errnosOf["write"],
	"sendto":     errnosOf["write"],
	"recvmsg":    {unix.EAGAIN, unix.EINTR, unix.EBADF, unix.ECONNREFUSED, unix.EFAULT, unix.EINVAL, unix.ENOMEM, unix.ENOTCONN, unix.ENOTSOCK},
	"connect":    {unix.EBUSY, unix.EAFNOSUPPORT, unix.EBADF, unix.EFAULT, unix.EINTR, unix.ENOTSOCK},
	"ioctl":      {unix.EBADF, unix.EFAULT, unix.EINVAL, unix.ENOTTY},
	"ppoll":      errnosOf["ppoll"],
	"setsockopt": errnosOf["setsockopt"],
	"getsockopt": errnosOf["getsockopt"],
	"shutdown":   errnosOf["shutdown"],
}

// A bufferSession is a connection to a client that reads nothing until the server,
// which sends in every way there is, has closed it; with sends outstanding, that
// is.
type bufferSession struct {
	reset bool // the server closes with SetLinger(0)

	sent     []byte // what the server's calls say was taken
	failures []error
	got      []byte
	gotErr   error
}

func (s *bufferSession) play(t *testing.T, aim func()) error {
	ln, err := (&ListenConfig{ZeroCopyThreshold: zeroCopyFrom}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	client, err := dialer.Dial("tcp4", ln.Addr().String())
	if err != nil {
		return err
	}
	defer client.Close()
	client.SetDeadline(time.Now().Add(testnet.HangTimeout))
	nc, err := ln.Accept()
	if err != nil {
		return err
	}
	c := nc.(*Conn)
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	if err := c.SetWriteBuffer(400 << 10); err != nil {
		return err
	}
	if s.reset {
		c.SetLinger(0)
	}
	aim()
	s.serve(c, client)
	if err := c.Close(); err != nil {
		s.failures = append(s.failures, err)
	}
	s.got, s.gotErr = io.ReadAll(client)
	return nil
}

func (s *bufferSession) serve(c *Conn, client net.Conn) {
	note := func(sent []byte, n int, err error) {
		s.sent = append(s.sent, sent[:n]...)
		if err != nil {
			s.failures = append(s.failures, err)
		}
	}
	io.WriteString(client, "hello")
	if b, err := c.ReadBuffer(10); err != nil {
		note(nil, 0, err)
	} else {
		if string(b.Bytes()) != "hello" {
			note(nil, 0, fmt.Errorf("ReadBuffer: got %q, want hello", b.Bytes()))
		}
		b.Release()
	}
	whole := someBytes(1, 40<<10)
	slices := net.Buffers{whole[:10], nil, whole[10:20000], whole[20000:]}
	n, err := c.WriteBuffers(&slices)
	note(whole, int(n), err)
	for i := range uint64(3) {
		b := someBytes(10+i, 10_000+5_000*int(i))
		n, err := c.WriteBuffer(bufferOf(b))
		note(b, n, err)
	}
}

// judge says what is wrong with what has come of the session.
func (s *bufferSession) judge(f *fault) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if !bytes.HasPrefix(s.sent, s.got) {
		complain("the client got other bytes than were sent")
	}
	switch {
	case s.reset && !errors.Is(s.gotErr, syscall.ECONNRESET) && (f == nil || f.op != "connect" && f.op != "getsockopt"):
		complain("the client: got %v, want a reset", s.gotErr)
	case !s.reset && (s.gotErr != nil || len(s.got) != len(s.sent)) && !(f != nil && f.op == "read"):
		// After a read that failed something is unread, and closing resets.
		complain("the client got %d bytes, %v, want %d and the end", len(s.got), s.gotErr, len(s.sent))
	}
	visible := f != nil && (f.op == "read" || f.op == "writev" || f.op == "sendto") && f.errno != unix.EAGAIN && f.errno != unix.EINTR &&
		!(f.op == "sendto" && (f.errno == unix.ENOBUFS || f.errno == unix.EOPNOTSUPP))
	if !visible && len(s.failures) > 0 {
		complain("got failures %v, want none", s.failures)
	}
	if visible && (len(s.failures) != 1 || !errors.Is(s.failures[0], f.errno)) {
		complain("got failures %v, want %v once", s.failures, f.errno)
	}
	if visible && len(s.failures) == 1 {
		var operr *net.OpError
		want := f.op
		if f.op == "sendto" {
			want = "write"
		}
		if !errors.As(s.failures[0], &operr) || operr.Op != want {
			complain("got failure %v, want an OpError of %q", s.failures[0], want)
		}
	}
	return complaints
}

// spuriousEdge does what has to happen for EAGAIN to be true; see
// session.spuriousEAGAIN.
func spuriousEdge(op string, fd int) bool {
	switch op {
	case "read":
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) == nil
	case "writev", "sendto":
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 400<<10) == nil
	case "recvmsg":
		return false // there is no event but by another message
	}
	return true
}

// TestBufferFaultSweep fails each call that moves buffers, with each errno, one at a
// time: no hang, no wrong byte, no buffer and no descriptor left.
func TestBufferFaultSweep(t *testing.T) {
	testnet.NoLeaks(t)
	fds, goroutines := testnet.CountFDs(), runtime.NumGoroutine()
	for _, reset := range []bool{false, true} {
		for _, op := range slices.Sorted(maps.Keys(bufferErrnos)) {
			hits := 0
			for _, errno := range bufferErrnos[op] {
				for n := int64(1); n <= 4; n++ {
					hits += playBufferFault(t, reset, op, errno, n, fds, goroutines)
				}
			}
			other := map[bool]string{false: "connect", true: "shutdown"}[reset] // needed by the other kind of end
			if hits == 0 && op != other {
				t.Errorf("no %s was made to fail: is it not needed any more?", op)
			}
		}
	}
}

// playBufferFault plays a session and returns how many calls failed: 0 or 1.
func playBufferFault(t *testing.T, reset bool, op string, errno syscall.Errno, n int64, fds, goroutines int) (hits int) {
	t.Helper()
	defer fastpath.MsgZerocopy.Force(true)() // and forget what an earlier fault made of it
	var calls atomic.Int64
	var hit atomic.Pointer[fault]
	s := &bufferSession{reset: reset}
	restore := func() {}
	testnet.Within(t, fmt.Sprintf("a session in which %s number %d fails with %s", op, n, unix.ErrnoName(errno)), func() {
		if err := s.play(t, func() {
			restore = sys.Inject(func(called sys.Op, fd int) syscall.Errno {
				if called.String() != op || calls.Add(1) != n {
					return 0
				}
				if errno == unix.EAGAIN && !spuriousEdge(op, fd) {
					return 0
				}
				hit.Store(&fault{op: op, n: n, errno: errno})
				return errno
			})
		}); err != nil {
			t.Error(err)
		}
	})
	// What is still held now is let go of when the peer is gone, fault or not.
	testnet.Eventually(t, fmt.Sprintf("the release of all buffers after %v", hit.Load()), func() bool { return pool.ReadStats().BuffersInUse == 0 })
	restore()
	complaints := s.judge(hit.Load())
	if left := settle(fds, goroutines); left != "" {
		complaints = append(complaints, left)
	}
	if len(complaints) > 0 {
		t.Fatalf("%v, reset %t: %s", hit.Load(), reset, strings.Join(complaints, "; "))
	}
	if hit.Load() != nil {
		return 1
	}
	return 0
}
