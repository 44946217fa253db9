//go:build percore_faults && !percore_net

package reactor

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/sys"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

// faults are the system calls that a server of handlers makes, with errors that their man pages list.
var faults = map[sys.Op][]syscall.Errno{
	sys.OpRead:        {unix.EINTR, unix.EAGAIN, unix.ECONNRESET, unix.ETIMEDOUT, unix.EIO, unix.ENOMEM},
	sys.OpWrite:       {unix.EINTR, unix.EAGAIN, unix.EPIPE, unix.ECONNRESET, unix.ENOBUFS, unix.ENOMEM},
	sys.OpWritev:      {unix.EINTR, unix.EPIPE, unix.ECONNRESET, unix.ENOBUFS, unix.ENOMEM},
	sys.OpEpollCtl:    {unix.ENOMEM, unix.ENOSPC},
	sys.OpShutdown:    {unix.ENOTCONN, unix.ENOBUFS},
	sys.OpClose:       {unix.EIO, unix.EINTR},
	sys.OpGetsockname: {unix.ENOBUFS},
}

// TestFaults has each call fail, with each error, one at a time: no hang, no wrong byte, no leak, and
// Close once with the error.
func TestFaults(t *testing.T) {
	testnet.NoLeaks(t)
	testnet.SweepFaults(t, faults, 4, func(f *testnet.Fault) { playFault(t, f) })
}

// playFault plays a client that asks for a short answer, a long one and the end.
func playFault(t *testing.T, f *testnet.Fault) {
	t.Helper()
	long := bytes.Repeat([]byte("0123456789abcdef"), 32<<10)
	end, ended := closes()
	s, dial := serve(t, &handler{close: end, open: func(c *Conn) {
		c.sock.conn.SetWriteBuffer(32 << 10)
	}, data: func(c *Conn, p []byte) int {
		switch p[0] {
		case 'l':
			c.Write([]byte("long:")) // and so two slices
			c.Write(long)
		case 'e':
			c.CloseWrite()
		default:
			c.Write(p[:1])
		}
		return 1
	}})
	c := dial()
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	io.WriteString(c, "a")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	restore := f.Inject(func(fd int) bool { return f.Errno != unix.EAGAIN || makeTrue(f, fd) })
	defer restore()
	io.WriteString(c, "b")
	time.Sleep(time.Millisecond)
	io.WriteString(c, "le")
	got, _ := io.ReadAll(c)
	c.Close()
	err := testnet.Receive(t, "Close", ended)
	restore()
	if want := "blong:" + string(long); !bytes.HasPrefix([]byte(want), got) {
		t.Errorf("%v: got wrong bytes", f)
	} else if err == io.EOF && len(got) != len(want) {
		t.Errorf("%v: got %d bytes, want %d", f, len(got), len(want))
	}
	var operr *net.OpError
	if err != io.EOF && !(errors.As(err, &operr) && errors.Is(err, f.Errno)) {
		t.Errorf("%v: Close got %v, want EOF or an OpError of that", f, err)
	}
	testnet.Eventually(t, "the connection is gone", func() bool { return s.Stats().Conns == 0 })
	testnet.Eventually(t, "all buffers are released", func() bool { return percore.ReadStats().Pool.BuffersInUse == 0 })
	s.Close()
	if len(ended) != 0 {
		t.Errorf("%v: Close came again", f)
	}
}

// makeTrue has an event come after an invented EAGAIN, as after a true one: setting SO_RCVLOWAT
// makes one for reading, and the first registration for writing does.
func makeTrue(f *testnet.Fault, fd int) bool {
	if f.Op == sys.OpRead {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT, 1) == nil
	}
	return f.N == 1
}

// One message to many connections is one send each, and one buffer.
func TestBroadcastSends(t *testing.T) {
	testnet.NoLeaks(t)
	s, dial := serve(t, &handler{})
	const clients = 200
	var conns []net.Conn
	for range clients {
		conns = append(conns, dial())
	}
	testnet.Eventually(t, "all are open", func() bool {
		n := 0
		for _, l := range s.loops() {
			n += countOpen(l)
		}
		return n == clients
	})
	var sends atomic.Int64
	restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		if op == sys.OpWrite || op == sys.OpWritev {
			sends.Add(1)
		}
		return 0
	})
	defer restore()
	gets := percore.ReadStats().Pool.Gets
	message := bytes.Repeat([]byte("m"), 2000)
	s.Broadcast(message, nil)
	for _, c := range conns {
		if _, err := io.ReadFull(c, make([]byte, len(message))); err != nil {
			t.Fatal(err)
		}
	}
	if n := sends.Load(); n != clients {
		t.Errorf("got %d sends for %d connections, want as many", n, clients)
	}
	if n := percore.ReadStats().Pool.Gets - gets; n != 1 {
		t.Errorf("got %d buffers, want 1", n)
	}
}

// The writes of a pipelined burst are one send.
func TestBurstIsOneSend(t *testing.T) {
	testnet.NoLeaks(t)
	_, dial := serve(t, &handler{data: func(c *Conn, p []byte) int {
		c.Write(p[:1])
		return 1
	}})
	c := dial()
	var reads, sends atomic.Int64
	restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
		switch op {
		case sys.OpRead:
			reads.Add(1)
		case sys.OpWrite, sys.OpWritev:
			sends.Add(1)
		}
		return 0
	})
	defer restore()
	c.Write(make([]byte, 100))
	if _, err := io.ReadFull(c, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if sends.Load() > reads.Load() || sends.Load() > 3 { // the kernel may deliver the burst in parts
		t.Errorf("got %d sends for %d reads, want one for each", sends.Load(), reads.Load())
	}
}

// A connection is closed while a write is under way of which the socket takes a part, and another
// write comes after it: the peer gets the beginning of the stream, without a gap.
func TestNoGapBeforeClose(t *testing.T) {
	s, _ := serve(t, &handler{})
	long := pool.Get(16 << 20)
	defer long.Release()
	clear(long.Bytes())
	for _, way := range []struct {
		write func(c *Conn)
		layer bool // whether there is one: the end of its stream must not follow a gap either
	}{
		{func(c *Conn) { c.Write(long.Bytes()) }, false},
		{func(c *Conn) { c.WriteShared(long) }, false},
		{func(c *Conn) { c.Write(long.Bytes()) }, true},
	} {
		var c *Conn
		var peer net.Conn
		last := int32(1) // the system call that isn't complete
		if way.layer {
			client := (*tls.Conn)(nil)
			c, client = attachTLS(t, s)
			c.sock.conn.SetWriteBuffer(1) // the least: room for the first record
			client.NetConn().(*net.TCPConn).SetReadBuffer(1)
			peer, last = client, 2
		} else {
			c, peer = attach(t, s)
		}
		testnet.Eventually(t, "the loop has opened it, and waits", func() bool {
			opened := countOpen(c.loop) == 1
			c.loop.mu.Lock()
			defer c.loop.mu.Unlock()
			return opened && !c.loop.mu.dispatching
		})
		held, release := make(chan bool), make(chan bool)
		c.loop.engine.Submit(func() {
			held <- true
			<-release
		})
		testnet.Receive(t, "the loop", held)
		var calls atomic.Int32
		restore := sys.Inject(func(op sys.Op, fd int) syscall.Errno {
			if op == sys.OpWrite && calls.Add(1) == last {
				if !way.layer { // whose writes come one after the other
					c.Write([]byte("later"))
				}
				c.Abort()
			}
			return 0
		})
		way.write(c)
		restore()
		c.Abort()                                                   // if the calls were fewer
		peer.SetReadDeadline(time.Now().Add(20 * time.Millisecond)) // so that there is room
		first, _ := io.ReadAll(peer)
		close(release)
		peer.SetReadDeadline(time.Now().Add(testnet.HangTimeout))
		rest, err := io.ReadAll(peer)
		if way.layer && !errors.Is(err, syscall.ECONNRESET) { // crypto/tls finds a gap between records
			t.Errorf("with a layer: the peer got %d bytes of %d, and %v, want a reset", len(first)+len(rest), len(long.Bytes()), err)
		}
		if all := append(first, rest...); bytes.ContainsFunc(all, func(r rune) bool { return r != 0 }) {
			t.Errorf("layer %t: after %d bytes of %d the peer got the bytes that were written later", way.layer, len(all), len(long.Bytes()))
		}
		testnet.Eventually(t, "the end", func() bool { return s.Stats().Conns == 0 })
	}
}
