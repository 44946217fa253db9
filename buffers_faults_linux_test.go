//go:build percore_faults && !percore_net

package percore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/pool"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
)

// bufferErrnos lists the errors that each call of WriteBuffers and ReadReady can return, according
// to its man page.
var bufferErrnos = map[sys.Op][]syscall.Errno{
	sys.OpRead:   errnosOf["read"],
	sys.OpWritev: errnosOf["write"],
}

// A bufferSession is a connection to a client that reads nothing until the server,
// which sends more than fits, has closed it.
type bufferSession struct {
	sent     []byte // how much was taken, as the server's calls report it
	failures []error
	got      []byte
	gotErr   error
}

func (s *bufferSession) play(t *testing.T, aim func()) error {
	ln, err := Listen("tcp4", "127.0.0.1:0")
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
	if b, err := readPooled(c, 10); err != nil {
		note(nil, 0, err)
	} else {
		if string(b.Bytes()) != "hello" {
			note(nil, 0, fmt.Errorf("ReadReady: got %q, want hello", b.Bytes()))
		}
		b.Release()
	}
	for i := range uint64(3) {
		whole := someBytes(i, 40<<10)
		slices := net.Buffers{whole[:10], nil, whole[10:20000], whole[20000:]}
		n, err := c.WriteBuffers(&slices)
		note(whole, int(n), err)
	}
}

// judge returns the mistakes in the session's outcome.
func (s *bufferSession) judge(f *testnet.Fault) (complaints []string) {
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }
	if !bytes.HasPrefix(s.sent, s.got) {
		complain("the client got other bytes than were sent")
	}
	// After a failed read, some bytes are unread, and closing resets the connection.
	if (s.gotErr != nil || len(s.got) != len(s.sent)) && !(f.Hit() && f.Op == sys.OpRead) {
		complain("the client got %d bytes, %v, want %d and the end", len(s.got), s.gotErr, len(s.sent))
	}
	visible := f.Hit() && f.Errno != unix.EAGAIN && f.Errno != unix.EINTR
	if !visible && len(s.failures) > 0 {
		complain("got failures %v, want none", s.failures)
	}
	if visible && (len(s.failures) != 1 || !errors.Is(s.failures[0], f.Errno)) {
		complain("got failures %v, want %v once", s.failures, f.Errno)
	}
	if visible && len(s.failures) == 1 {
		var operr *net.OpError
		if !errors.As(s.failures[0], &operr) || operr.Op != f.Op.String() {
			complain("got failure %v, want an OpError of %q", s.failures[0], f.Op.String())
		}
	}
	return complaints
}

// spuriousEdge makes an injected EAGAIN true; see session.spuriousEAGAIN.
func spuriousEdge(op sys.Op, fd int) bool {
	switch op {
	case sys.OpRead:
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) == nil
	case sys.OpWritev:
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 400<<10) == nil
	}
	return true
}

// TestBufferFaultSweep fails each call that moves buffers, with each errno, one at a
// time: no hang, no wrong byte, no buffer and no descriptor left.
func TestBufferFaultSweep(t *testing.T) {
	testnet.NoLeaks(t)
	fds, goroutines := testnet.CountFDs(), runtime.NumGoroutine()
	testnet.SweepFaults(t, bufferErrnos, 4, func(f *testnet.Fault) {
		playBufferFault(t, f, fds, goroutines)
	})
}

// playBufferFault plays a session with a fault.
func playBufferFault(t *testing.T, f *testnet.Fault, fds, goroutines int) {
	t.Helper()
	s := new(bufferSession)
	restore := func() {}
	testnet.Within(t, fmt.Sprintf("a session in which %v", f), func() {
		if err := s.play(t, func() {
			restore = f.Inject(func(fd int) bool { return f.Errno != unix.EAGAIN || spuriousEdge(f.Op, fd) })
		}); err != nil {
			t.Error(err)
		}
	})
	// Buffers that are still held now are released once the peer is gone, fault or not.
	testnet.Eventually(t, fmt.Sprintf("the release of all buffers after %v", f), func() bool {
		return pool.ReadStats().BuffersInUse == 0
	})
	restore()
	complaints := s.judge(f)
	if left := settle(fds, goroutines); left != "" {
		complaints = append(complaints, left)
	}
	if len(complaints) > 0 {
		t.Fatalf("%v: %s", f, strings.Join(complaints, "; "))
	}
}

// someBytes returns n bytes that are different for each id.
func someBytes(id uint64, n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)})
	random.Read(b)
	return b
}
