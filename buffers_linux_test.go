//go:build !percore_net

package percore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/fastpath"
	"github.com/percore/percore/internal/invariants"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
	"github.com/percore/percore/zerocopy"
)

// zeroCopyFrom is the threshold of the tests' listeners.
const zeroCopyFrom = 4 << 10

// wantNoBuffers waits until all buffers of the pool are released.
func wantNoBuffers(t *testing.T, when string) {
	t.Helper()
	testnet.Eventually(t, "all buffers are released "+when, func() bool { return pool.ReadStats().BuffersInUse == 0 })
	if err := pool.Default().CheckLeaks(); err != nil {
		t.Error(err)
	}
}

// someBytes returns n bytes that are different for each id.
func someBytes(id uint64, n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(id), byte(id >> 8)})
	random.Read(b)
	return b
}

// bufferOf returns a buffer with b's content.
func bufferOf(b []byte) *pool.Buffer {
	buffer := pool.Get(len(b))
	copy(buffer.Bytes(), b)
	return buffer
}

// A stalled connection is one whose peer has not read for so long that nothing is
// sent any more: what is written lies in the kernel until the peer reads. So sends
// without copying are outstanding for as long as the test likes, and the kernel
// has no reason yet to copy them, as it always does in the end on loopback.
type stalledConn struct {
	*Conn
	client  *net.TCPConn
	loop    *loop.Loop
	written []byte // what the client has to read
}

func newStalled(t *testing.T) *stalledConn {
	t.Helper()
	group := newGroup(t, 1)
	ln := listen(t, ListenConfig{Group: group, ZeroCopyThreshold: zeroCopyFrom}, "tcp4", "127.0.0.1:0")
	// The window is small from the start: it can't be taken back later (RFC 9293,
	// 3.8.6).
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10) })
	}}
	client, err := dialer.Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := ln.AcceptConn()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	s := &stalledConn{Conn: server, client: client.(*net.TCPConn), loop: group.Loop(0)}
	if err := s.SetWriteBuffer(400 << 10); err != nil {
		t.Fatal(err)
	}
	// The loop that has woken the only reader there is leaves the polling to him:
	// nobody polls from here on, unless there is a reason to.
	reading := make(chan error, 1)
	testnet.GoBlocked(t, "Read", func() {
		_, err := s.Read(make([]byte, 10))
		reading <- err
	})
	if _, err := io.WriteString(s.client, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := testnet.Receive(t, "Read", reading); err != nil {
		t.Fatal(err)
	}
	// So much that the kernel makes several packets of it: what its timers may try
	// to send now and then is of the first, and has nothing to do with what follows.
	s.written = someBytes(1, 150_000)
	if _, err := s.Write(s.written); err != nil {
		t.Fatal(err)
	}
	testnet.Eventually(t, "the window is full", func() bool { return s.unsent(t) > 0 })
	return s
}

// unsent is how many bytes the kernel has not sent yet.
func (s *stalledConn) unsent(t *testing.T) (n int) {
	t.Helper()
	if err := s.sock.fd.Control(func(fd int) (errno syscall.Errno) {
		n, _ = unix.IoctlGetInt(fd, unix.SIOCOUTQNSD)
		return 0
	}); err != nil {
		t.Error(err)
	}
	return n
}

// send writes n bytes that the kernel must not have copied.
func (s *stalledConn) send(t *testing.T, n int) {
	t.Helper()
	before := zerocopy.ReadStats().ZerocopyBytes
	b := someBytes(uint64(len(s.written)), n)
	if sent, err := s.WriteBuffer(bufferOf(b)); sent != n || err != nil {
		t.Fatalf("WriteBuffer: got %d, %v, want %d", sent, err, n)
	}
	s.written = append(s.written, b...)
	if got := zerocopy.ReadStats().ZerocopyBytes - before; got != uint64(n) {
		t.Errorf("got %d bytes sent without copying, want %d", got, n)
	}
	if inUse := pool.ReadStats().BuffersInUse; inUse == 0 {
		t.Error("the buffer was released before the kernel was done with it")
	}
}

// clientReads has the client read all that was written, and then the end.
func (s *stalledConn) clientReads(t *testing.T, end error) {
	t.Helper()
	s.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	got := make([]byte, len(s.written))
	if n, err := io.ReadFull(s.client, got); err != nil || !bytes.Equal(got, s.written) {
		t.Errorf("the client got %d bytes, %v, want %d, right ones", n, err, len(got))
	}
	if n, err := s.client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, end) {
		t.Errorf("the client at the end: got %d, %v, want %v", n, err, end)
	}
}

// wantEnded waits until the loop has let go of the descriptor.
func (s *stalledConn) wantEnded(t *testing.T) {
	t.Helper()
	wantNoBuffers(t, "at the end")
	testnet.Eventually(t, "the descriptor is closed", func() bool { return s.loop.Descriptors() == 0 })
}

// wantClosed checks that nobody can do anything with the connection any more.
func (s *stalledConn) wantClosed(t *testing.T) {
	t.Helper()
	_, err := s.Write([]byte("text"))
	wantErr(t, "Write", err, "write", net.ErrClosed)
	_, err = s.Read(make([]byte, 1))
	wantErr(t, "Read", err, "read", net.ErrClosed)
	_, err = s.WriteBuffer(pool.Get(2 * zeroCopyFrom))
	wantErr(t, "WriteBuffer", err, "write", net.ErrClosed)
	wantErr(t, "Close", s.Close(), "close", net.ErrClosed)
	wantErr(t, "SetDeadline", s.SetDeadline(time.Time{}), "set", net.ErrClosed)
}

// TestWriteBufferOnLoopback sends large buffers to a peer that reads: the kernel
// copies, says so, and is not asked again.
func TestWriteBufferOnLoopback(t *testing.T) {
	t.Run("accepted", func(t *testing.T) {
		testnet.NoLeaks(t)
		c, client := connect(t, listen(t, ListenConfig{Group: newGroup(t, 1), ZeroCopyThreshold: zeroCopyFrom}, "tcp4", "127.0.0.1:0"))
		testWriteBufferOnLoopback(t, c, client)
	})
	t.Run("dialed", func(t *testing.T) {
		testnet.NoLeaks(t)
		c, peer := dialFrom(t, &Dialer{Group: newGroup(t, 1), ZeroCopyThreshold: zeroCopyFrom}, testnet.Listen(t, net.Listen, testnet.TCP4))
		testWriteBufferOnLoopback(t, c, peer)
	})
}

func testWriteBufferOnLoopback(t *testing.T, c *Conn, peer net.Conn) {
	before := zerocopy.ReadStats()
	received := make([]byte, 64<<10)
	for i := range uint64(50) {
		want := someBytes(i, len(received))
		sent := make(chan error, 1)
		go func() {
			n, err := c.WriteBuffer(bufferOf(want))
			if err == nil && n != len(want) {
				err = fmt.Errorf("WriteBuffer: %d bytes without an error", n)
			}
			sent <- err
		}()
		if _, err := io.ReadFull(peer, received); err != nil || !bytes.Equal(received, want) {
			t.Fatalf("buffer %d: got other bytes, %v", i, err)
		}
		if err := testnet.Receive(t, "WriteBuffer", sent); err != nil {
			t.Fatal(err)
		}
		wantNoBuffers(t, "after they were received")
	}
	after := zerocopy.ReadStats()
	bytes, copied := after.ZerocopyBytes-before.ZerocopyBytes, after.ZerocopyCopied-before.ZerocopyCopied
	if bytes == 0 || copied == 0 || after.ZerocopyDeclined == before.ZerocopyDeclined {
		t.Errorf("got %d bytes sent with MSG_ZEROCOPY, %d sends copied, and then declined %d times, want some of each",
			bytes, copied, after.ZerocopyDeclined-before.ZerocopyDeclined)
	}
	if bytes > uint64(len(received)) {
		t.Errorf("got %d bytes sent with MSG_ZEROCOPY, want it given up after the first %d were copied", bytes, len(received))
	}
}

// TestWriteBufferPlain sends what must not be sent without copying.
func TestWriteBufferPlain(t *testing.T) {
	for _, test := range []struct {
		name      string
		threshold int
		kind      testnet.Kind
		size      int
		prepare   func(t *testing.T, c *Conn)
	}{
		{"not asked for", 0, testnet.TCP4, 64 << 10, nil},
		{"below the threshold", 64 << 10, testnet.TCP4, 64<<10 - 1, nil},
		{"nothing", 1, testnet.TCP4, 0, nil},
		{"unix", 1, testnet.Unix, 64 << 10, nil},
		{"switched off", 1, testnet.TCP4, 64 << 10, func(t *testing.T, _ *Conn) { t.Cleanup(fastpath.MsgZerocopy.Force(false)) }},
		{"raw descriptor", 1, testnet.TCP4, 64 << 10, func(t *testing.T, c *Conn) {
			raw, err := c.SyscallConn()
			if err == nil {
				err = raw.Control(func(uintptr) {})
			}
			if err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			c, client := connect(t, listenKindIn(t, ListenConfig{Group: newGroup(t, 1), ZeroCopyThreshold: test.threshold}, test.kind))
			if test.prepare != nil {
				test.prepare(t, c)
			}
			before := zerocopy.ReadStats()
			want := someBytes(3, test.size)
			go func() {
				if n, err := c.WriteBuffer(bufferOf(want)); n != len(want) || err != nil {
					t.Errorf("WriteBuffer: got %d, %v, want %d", n, err, len(want))
				}
				c.CloseWrite()
			}()
			if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, want) {
				t.Errorf("the client got %d bytes, %v, want %d, right ones", len(got), err, len(want))
			}
			if n := zerocopy.ReadStats().ZerocopyBytes - before.ZerocopyBytes; n != 0 {
				t.Errorf("got %d bytes sent with MSG_ZEROCOPY, want none", n)
			}
			wantNoBuffers(t, "after a plain write")
		})
	}
}

// TestWriteBufferReferences checks who has the buffer when: the call takes the
// caller's reference, and another one stays the caller's.
func TestWriteBufferReferences(t *testing.T) {
	testnet.NoLeaks(t)
	s := newStalled(t)
	b := bufferOf(someBytes(5, 32<<10))
	b.Retain()
	if n, err := s.WriteBuffer(b); n != 32<<10 || err != nil {
		t.Fatalf("got %d, %v, want all", n, err)
	}
	s.written = append(s.written, b.Bytes()...)
	part := b.Slice(100, 100+10<<10)
	s.written = append(s.written, part.Bytes()...)
	b.Release()
	if n, err := s.WriteBuffer(part); n != 10<<10 || err != nil {
		t.Fatalf("a slice: got %d, %v, want all", n, err)
	}
	if inUse := pool.ReadStats().BuffersInUse; inUse != 1 {
		t.Errorf("got %d buffers in use while the kernel has one, want 1", inUse)
	}
	s.Close()
	s.clientReads(t, io.EOF)
	s.wantEnded(t)

	var none Conn
	if n, err := none.WriteBuffer(pool.Get(10)); n != 0 || err != syscall.EINVAL {
		t.Errorf("no connection: got %d, %v, want 0, EINVAL", n, err)
	}
	wantNoBuffers(t, "by a call that fails")
}

// TestWriteBufferThenClose closes connections on which sends are outstanding: for
// the caller and the peer it is as with net, and the memory waits for the kernel.
func TestWriteBufferThenClose(t *testing.T) {
	notCopied := func(t *testing.T) {
		before := zerocopy.ReadStats().ZerocopyCopied
		t.Cleanup(func() {
			if n := zerocopy.ReadStats().ZerocopyCopied - before; n != 0 {
				t.Errorf("got %d sends copied, want none: nothing was sent", n)
			}
		})
	}
	for _, test := range []struct {
		name string
		play func(t *testing.T, s *stalledConn)
	}{
		{"the peer reads", func(t *testing.T, s *stalledConn) {
			s.Close()
			s.wantClosed(t)
			if n := pool.ReadStats().BuffersInUse; n == 0 || s.loop.Descriptors() != 1 {
				t.Errorf("after Close: got %d buffers in use, %d descriptors, want some and 1", n, s.loop.Descriptors())
			}
			s.clientReads(t, io.EOF)
		}},
		{"the peer read before", func(t *testing.T, s *stalledConn) {
			s.CloseWrite()
			s.clientReads(t, io.EOF)
			wantNoBuffers(t, "before Close")
			s.Close()
			s.wantClosed(t)
		}},
		{"the peer closes", func(t *testing.T, s *stalledConn) {
			s.Close()
			s.client.Close()
		}},
		{"the peer closed before", func(t *testing.T, s *stalledConn) {
			s.client.Close()
			s.Close()
		}},
		{"the peer shuts down and reads", func(t *testing.T, s *stalledConn) {
			s.client.CloseWrite()
			if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("Read: got %d, %v, want EOF", n, err)
			}
			s.Close()
			s.clientReads(t, io.EOF)
		}},
		{"the peer resets", func(t *testing.T, s *stalledConn) {
			notCopied(t)
			s.client.SetLinger(0)
			s.client.Close()
			_, err := s.Read(make([]byte, 1))
			wantErr(t, "Read", err, "read", syscall.ECONNRESET)
			wantNoBuffers(t, "after the reset")
			s.Close()
		}},
		{"the peer resets after Close", func(t *testing.T, s *stalledConn) {
			notCopied(t)
			s.Close()
			s.client.SetLinger(0)
			s.client.Close()
		}},
		{"the peer sends after Close", func(t *testing.T, s *stalledConn) {
			s.Close()
			s.client.Write([]byte("anybody there?"))
			s.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
			if _, err := io.Copy(io.Discard, s.client); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client: got %v, want a reset", err)
			}
		}},
		{"SetLinger(0)", func(t *testing.T, s *stalledConn) {
			notCopied(t)
			s.SetLinger(0)
			s.Close()
			s.wantClosed(t)
			wantNoBuffers(t, "by the reset")
			s.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
			if _, err := io.Copy(io.Discard, s.client); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client: got %v, want a reset", err)
			}
		}},
		{"SetLinger(1)", func(t *testing.T, s *stalledConn) {
			s.SetLinger(1)
			s.Close()
			s.clientReads(t, io.EOF)
		}},
		{"unread bytes", func(t *testing.T, s *stalledConn) {
			notCopied(t)
			s.client.Write([]byte("unread"))
			testnet.Eventually(t, "they arrive", func() bool {
				n := 0
				s.sock.fd.Control(func(fd int) syscall.Errno { n, _ = unix.IoctlGetInt(fd, unix.SIOCINQ); return 0 })
				return n > 0
			})
			s.Close()
			wantNoBuffers(t, "by the reset")
			s.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
			if _, err := io.Copy(io.Discard, s.client); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client: got %v, want a reset", err)
			}
		}},
		{"while a Read waits", func(t *testing.T, s *stalledConn) {
			reading := make(chan error, 1)
			testnet.GoBlocked(t, "Read", func() {
				_, err := s.Read(make([]byte, 1))
				reading <- err
			})
			s.Close()
			wantErr(t, "Read", testnet.Receive(t, "Read", reading), "read", net.ErrClosed)
			s.clientReads(t, io.EOF)
		}},
		{"a duplicate stays open", func(t *testing.T, s *stalledConn) {
			f, err := s.File()
			if err != nil {
				t.Fatal(err)
			}
			s.Close()
			s.written = append(s.written, "by the duplicate"...)
			if _, err := f.WriteString("by the duplicate"); err != nil {
				t.Errorf("the duplicate: %v", err)
			}
			got := make([]byte, len(s.written))
			if _, err := io.ReadFull(s.client, got); err != nil || !bytes.Equal(got, s.written) {
				t.Errorf("the client got wrong bytes, %v", err)
			}
			wantNoBuffers(t, "while the duplicate is open")
			f.Close()
			s.written = nil
			s.clientReads(t, io.EOF)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			s := newStalled(t)
			s.send(t, 20_000)
			s.send(t, 50_000)
			test.play(t, s)
			s.Close()
			s.wantEnded(t)
		})
	}
}

// A Conn that is dropped with sends outstanding is closed like any other.
func TestWriteBufferGarbage(t *testing.T) {
	testnet.NoLeaks(t)
	group := newGroup(t, 1)
	ln := listen(t, ListenConfig{Group: group, ZeroCopyThreshold: zeroCopyFrom}, "tcp4", "127.0.0.1:0")
	want := someBytes(8, 200_000)
	client := func() net.Conn {
		c, client := accept(t, ln)
		c.SetWriteBuffer(400 << 10)
		if n, err := c.WriteBuffer(bufferOf(want)); n != len(want) || err != nil {
			t.Errorf("WriteBuffer: got %d, %v, want %d", n, err, len(want))
		}
		return client
	}()
	received := make(chan []byte, 1)
	go func() {
		got, err := io.ReadAll(client)
		if err != nil {
			t.Errorf("the client: %v", err)
		}
		received <- got
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if got := <-received; !bytes.Equal(got, want) {
			t.Errorf("the client got %d bytes, want %d, right ones", len(got), len(want))
		}
	}()
	collectGarbage(t, "the connection is closed", done)
	wantNoBuffers(t, "at the end")
}

// A completion is no news for those who read: no callback, no wake-up, no error.
func TestWriteBufferDoesNotWakeReaders(t *testing.T) {
	testnet.NoLeaks(t)
	s := newStalled(t)
	s.send(t, 50_000)
	called := make(chan error, 1)
	if err := s.OnReadable(func(err error) { called <- err }); err != nil {
		t.Fatal(err)
	}
	s.client.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
	if _, err := io.ReadFull(s.client, make([]byte, len(s.written))); err != nil {
		t.Errorf("the client: %v", err)
	}
	wantNoBuffers(t, "when the client has read them")
	select {
	case err := <-called:
		t.Errorf("the callback was called with %v for a completion", err)
	default:
	}
	s.client.Write([]byte("now"))
	if err := testnet.Receive(t, "the callback", called); err != nil {
		t.Errorf("the callback: got %v, want nil", err)
	}
	if n, err := s.Read(make([]byte, 10)); n != 3 || err != nil {
		t.Errorf("Read: got %d, %v, want 3", n, err)
	}
	s.Close()
	s.wantEnded(t)
}

// A WriteBuffer that is cut returns how much went out, and the memory stays until
// that much is acknowledged.
func TestWriteBufferCut(t *testing.T) {
	for name, cut := range map[string]func(s *stalledConn) error{
		"deadline": func(s *stalledConn) error {
			s.SetWriteDeadline(time.Unix(1, 0))
			return os.ErrDeadlineExceeded
		},
		"Close": func(s *stalledConn) error {
			s.Close()
			return net.ErrClosed
		},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			s := newStalled(t)
			b := someBytes(9, 4<<20)
			type result struct {
				n   int
				err error
			}
			writing := make(chan result, 1)
			testnet.GoBlocked(t, "WriteBuffer", func() {
				n, err := s.WriteBuffer(bufferOf(b))
				writing <- result{n, err}
			})
			testnet.Eventually(t, "a part is written", func() bool { return s.unsent(t) > len(s.written) })
			want := cut(s)
			r := testnet.Receive(t, "WriteBuffer", writing)
			wantErr(t, "WriteBuffer", r.err, "write", want)
			if r.n == 0 || r.n == len(b) || pool.ReadStats().BuffersInUse == 0 {
				t.Errorf("got %d bytes written and %d buffers in use, want a part of %d and 1", r.n, pool.ReadStats().BuffersInUse, len(b))
			}
			s.written = append(s.written, b[:r.n]...)
			s.Close()
			s.clientReads(t, io.EOF)
			s.wantEnded(t)
		})
	}
}

// Many connections at once, each with several writers, half of them closed or cut
// at some moment: whatever arrives is what was sent, whole buffers one after the
// other, and no buffer stays behind.
func TestWriteBufferStress(t *testing.T) {
	testnet.NoLeaks(t)
	rounds := 20
	if testing.Short() {
		rounds = 4
	}
	group := newGroup(t, 2)
	ln := listen(t, ListenConfig{Group: group, ZeroCopyThreshold: zeroCopyFrom}, "tcp4", "127.0.0.1:0")
	var running sync.WaitGroup
	for range rounds {
		c, client := accept(t, ln)
		running.Go(func() { playWriters(t, c, client) })
	}
	testnet.Within(t, "the connections", running.Wait)
	wantNoBuffers(t, "at the end")
	testnet.Eventually(t, "the descriptors are closed", func() bool {
		return group.Loop(0).Descriptors()+group.Loop(1).Descriptors() == 0
	})
}

// playWriters writes buffers of one value each from several goroutines, and has the
// client check that no buffer is interleaved with another.
func playWriters(t *testing.T, c *Conn, client net.Conn) {
	const writers, buffers, size = 4, 10, 40_000
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			for i := range buffers {
				b := pool.Get(size)
				p := b.Bytes()
				for j := range p {
					p[j] = byte(w*buffers + i)
				}
				if _, err := c.WriteBuffer(b); err != nil {
					return
				}
			}
		})
	}
	go func() {
		switch rand.IntN(4) {
		case 0:
			runtime.Gosched()
			c.Close()
		case 1:
			c.SetWriteDeadline(time.Now().Add(time.Millisecond))
		}
		writing.Wait()
		c.Close()
	}()
	got, _ := io.ReadAll(client)
	client.Close()
	for i := 0; i < len(got); i += size {
		whole := got[i:min(i+size, len(got))]
		for j, b := range whole {
			if b != whole[0] {
				t.Errorf("byte %d of the buffer of %ds is %d", j, whole[0], b)
				break
			}
		}
	}
	writing.Wait()
}

// TestBufferAllocs checks that none of the calls allocates.
func TestBufferAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's sync.Pool allocates")
	}
	if invariants.Enabled {
		t.Skip("the checking build keeps a stack of each acquire and release")
	}
	testnet.NoLeaks(t)
	ln := listen(t, ListenConfig{Group: newGroup(t, 2), ZeroCopyThreshold: zeroCopyFrom}, "tcp4", "127.0.0.1:0")
	c, client := connect(t, ln)
	go io.Copy(io.Discard, client)
	p := make([]byte, 4096)
	slices := make(net.Buffers, 16)
	large := pool.Get(16 << 10) // one for all: while the kernel has it another Get would allocate
	for what, f := range map[string]func() error{
		"WriteBuffers": func() error {
			for i := range slices {
				slices[i] = p[:200]
			}
			left := slices
			_, err := c.WriteBuffers(&left)
			return err
		},
		"WriteBuffer, large": func() error {
			large.Retain()
			_, err := c.WriteBuffer(large)
			return err
		},
	} {
		var failed error
		if n := testing.AllocsPerRun(200, func() {
			if err := f(); err != nil {
				failed = err
			}
		}); n >= 1 || failed != nil { // below 1: what is made once
			t.Errorf("%s: got %v allocations, %v, want none", what, n, failed)
		}
	}
	large.Release()
	wantNoBuffers(t, "after the writes")

	c, client = connect(t, ln)
	go io.Copy(client, onlyReader{client})
	if n := testing.AllocsPerRun(200, func() {
		if _, err := c.Write(p[:64]); err != nil {
			t.Error(err)
		}
		b, err := c.ReadBuffer(100)
		if err != nil {
			t.Errorf("ReadBuffer: %v", err)
			return
		}
		b.Release()
	}); n >= 1 {
		t.Errorf("ReadBuffer: got %v allocations, want none", n)
	}
}

// onlyReader hides all other methods, so that package net copies as usual.
type onlyReader struct{ io.Reader }

// A connection that waits in ReadBuffer has no buffer; one that got none returns
// none.
func TestReadBufferHoldsNone(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range []testnet.Kind{testnet.TCP4, testnet.Unix} {
		c, client := connect(t, listenKindIn(t, ListenConfig{Group: newGroup(t, 1)}, kind))
		for _, text := range []string{"first", "second, which fills it"} {
			type result struct {
				b   *pool.Buffer
				err error
			}
			reading := make(chan result, 1)
			testnet.GoBlocked(t, "ReadBuffer", func() {
				b, err := c.ReadBuffer(len("second, which fills it"))
				reading <- result{b, err}
			})
			// A moment later perhaps: it may be stuck in looking in vain.
			testnet.Eventually(t, "a ReadBuffer that waits holds no buffer", func() bool { return pool.ReadStats().BuffersInUse == 0 })
			io.WriteString(client, text)
			r := testnet.Receive(t, "ReadBuffer", reading)
			if r.err != nil || string(r.b.Bytes()) != text {
				t.Fatalf("%s: got %v, %v, want %q", kind, r.b, r.err, text)
			}
			r.b.Release()
		}
		client.Close()
		if b, err := c.ReadBuffer(10); b != nil || err != io.EOF {
			t.Errorf("%s: at the end: got %v, %v, want no buffer, EOF", kind, b, err)
		}
		wantNoBuffers(t, "at the end")
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: ReadBuffer(-1) did not panic", kind)
				}
			}()
			c.ReadBuffer(-1)
		}()
	}
}

// ReadReady and lent memory, by way of a Conn.
func TestReadReady(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := connect(t, listen(t, ListenConfig{Group: newGroup(t, 1)}, "tcp4", "127.0.0.1:0"))
	held := 0
	p := make([]byte, 10)
	read := func() (int, error) {
		return c.ReadReady(func() []byte { held++; return p }, func() { held-- })
	}
	io.WriteString(client, "text")
	if n, err := read(); n != 4 || err != nil || held != 1 || string(p[:n]) != "text" {
		t.Errorf("got %d, %v, memory in use %d times, want 4, once", n, err, held)
	}
	c.SetReadDeadline(time.Unix(1, 0))
	_, err := read()
	wantErr(t, "past the deadline", err, "read", os.ErrDeadlineExceeded)
	c.SetReadDeadline(time.Time{})
	client.Close()
	if n, err := read(); n != 0 || err != io.EOF || held != 1 {
		t.Errorf("at the end: got %d, %v, memory in use %d times, want 0, EOF, once", n, err, held)
	}
	c.Close()
	_, err = read()
	wantErr(t, "after Close", err, "read", net.ErrClosed)
	var none *Conn
	if n, err := none.ReadReady(nil, nil); n != 0 || err != syscall.EINVAL {
		t.Errorf("no connection: got %d, %v, want 0, EINVAL", n, err)
	}
	if b, err := none.ReadBuffer(1); b != nil || err != syscall.EINVAL {
		t.Errorf("no connection: got %v, %v, want none, EINVAL", b, err)
	}
	if n, err := none.WriteBuffers(nil); n != 0 || err != syscall.EINVAL {
		t.Errorf("no connection: got %d, %v, want 0, EINVAL", n, err)
	}
}
