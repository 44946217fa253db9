package main

import (
	"bytes"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) { testnet.Main(m, testnet.WithCheck(pool.CheckLeaks)) }

// start serves a gateway to a backend and returns its listener.
func start(t *testing.T, backend string) net.Listener {
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	g, err := newGateway(backend)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- g.server.Serve(ln) }()
	t.Cleanup(func() {
		g.server.Close()
		testnet.Receive(t, "the server's end", done)
	})
	return ln
}

// listen returns a backend's listener.
func listen(t *testing.T) net.Listener { return testnet.Listen(t, net.Listen, testnet.TCP4) }

// connect returns both ends of a connection through the gateway.
func connect(t *testing.T, ln, backend net.Listener) (client, server *net.TCPConn) {
	t.Helper()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := backend.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client = testnet.Dial(t, ln).(*net.TCPConn)
	c := testnet.Receive(t, "the gateway's connection", accepted)
	if c == nil {
		t.FailNow()
	}
	server = c.(*net.TCPConn)
	t.Cleanup(func() { server.Close() })
	for _, c := range []net.Conn{client, server} {
		c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	}
	return client, server
}

// TestBothWays sends megabytes in both directions of several connections at once, in pieces of any
// length. Each side ends its stream first or last.
func TestBothWays(t *testing.T) {
	backend := listen(t)
	ln := start(t, backend.Addr().String())
	const size = 2 << 20
	text := make([]byte, size)
	for i := range text {
		text[i] = byte(rand.Uint32())
	}
	var wg sync.WaitGroup
	for range 4 {
		client, server := connect(t, ln, backend)
		for _, c := range []*net.TCPConn{client, server} {
			wg.Go(func() {
				for rest := text; len(rest) > 0; {
					n, err := c.Write(rest[:min(len(rest), 1+rand.IntN(100_000))])
					if err != nil {
						t.Error(err)
						return
					}
					rest = rest[n:]
				}
				c.CloseWrite()
			})
			wg.Go(func() {
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, text) {
					t.Errorf("got %d bytes, %v, want the %d that were sent", len(got), err, size)
				}
			})
		}
	}
	testnet.Within(t, "the connections' end", wg.Wait)
}

// TestHalfClose has one side end its stream and read on: the other sees the end and may still write.
func TestHalfClose(t *testing.T) {
	backend := listen(t)
	ln := start(t, backend.Addr().String())
	for _, clientFirst := range []bool{true, false} {
		first, second := connect(t, ln, backend)
		if !clientFirst {
			first, second = second, first
		}
		io.WriteString(first, "question")
		first.CloseWrite()
		if got, err := io.ReadAll(second); string(got) != "question" || err != nil {
			t.Fatalf("got %q, %v, want the question and the end", got, err)
		}
		for _, part := range []string{"a long ", "answer"} {
			io.WriteString(second, part)
			got := make([]byte, len(part))
			if _, err := io.ReadFull(first, got); string(got) != part || err != nil {
				t.Fatalf("got %q, %v, want %q", got, err, part)
			}
		}
		second.CloseWrite()
		if got, err := io.ReadAll(first); len(got) > 0 || err != nil {
			t.Fatalf("got %q, %v, want the end", got, err)
		}
	}
}

// TestSlowSide has one side that sends without end and another that doesn't read: the first is held
// up, with little in memory, others are served, and when the second reads everything comes.
func TestSlowSide(t *testing.T) {
	backend := listen(t)
	ln := start(t, backend.Addr().String())
	for _, clientSends := range []bool{true, false} {
		from, to := connect(t, ln, backend)
		if !clientSends {
			from, to = to, from
		}
		const size = 64 << 20 // more than the sockets hold
		sent := make(chan error, 1)
		go func() {
			_, err := from.Write(make([]byte, size))
			from.CloseWrite()
			sent <- err
		}()
		c, s := connect(t, ln, backend)
		// The bound has what may wait, what two calls of Data add, since Room may let one in that is late,
		// and a buffer that is sent in part, each as long as unsentMax; and the other connection's.
		const most = 5 * unsentMax
		for range 1000 {
			if got := pool.ReadStats().BytesInUse; got > most {
				t.Fatalf("got %d bytes of buffers in use, want %d at most", got, most)
			}
			p := []byte("hello")
			c.Write(p)
			if _, err := io.ReadFull(s, p); err != nil || string(p) != "hello" {
				t.Fatalf("another connection got %q, %v", p, err)
			}
		}
		select {
		case err := <-sent:
			t.Fatalf("nothing held the sender up: %v", err)
		default:
		}
		for _, c := range []net.Conn{from, to} {
			c.SetDeadline(time.Now().Add(testnet.HangTimeout))
		}
		if n, err := io.Copy(io.Discard, to); n != size || err != nil {
			t.Fatalf("got %d bytes, %v, want %d", n, err, size)
		}
		if err := testnet.Receive(t, "the sender's end", sent); err != nil {
			t.Error(err)
		}
	}
}

// TestLost resets one side, when all that it has sent has come, or when much of it waits. The other is
// reset, too: it must not take what it got for all.
func TestLost(t *testing.T) {
	backend := listen(t)
	ln := start(t, backend.Addr().String())
	for _, clientFirst := range []bool{true, false} {
		for _, waits := range []bool{false, true} {
			lost, left := connect(t, ln, backend)
			if !clientFirst {
				lost, left = left, lost
			}
			io.WriteString(lost, "hello")
			if _, err := io.ReadFull(left, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			if waits {
				sendUntilHeld(t, lost)
			}
			lost.SetLinger(0)
			lost.Close()
			if n, err := io.Copy(io.Discard, left); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("much waits %t: got %d bytes, %v, want a reset", waits, n, err)
			}
		}
	}
}

// sendUntilHeld sends until the gateway's buffers are in use and no more is taken.
func sendUntilHeld(t *testing.T, c *net.TCPConn) {
	t.Helper()
	testnet.Eventually(t, "the sender is held up", func() bool {
		c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		n, _ := c.Write(make([]byte, 4<<20))
		return n == 0 && pool.ReadStats().BuffersInUse > 0
	})
}

// TestNoBackend has no backend: the client sees the end.
func TestNoBackend(t *testing.T) {
	// A client's port refuses connections, and no other program can get it.
	busy := testnet.Dial(t, listen(t))
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	c := testnet.Dial(t, start(t, busy.LocalAddr().String()))
	c.SetDeadline(time.Now().Add(testnet.HangTimeout))
	io.WriteString(c, "hello")
	if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v, want the end", got, err)
	}
}

// Without -to the program says so at once, and not to each client.
func TestMissingTo(t *testing.T) {
	if _, err := newGateway(""); err == nil || !strings.Contains(err.Error(), "-to") {
		t.Errorf("got %v, want an error that names the flag", err)
	}
}
