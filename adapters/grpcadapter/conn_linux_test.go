//go:build !percore_net

package grpcadapter

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// readyReader is the interface that grpc-go looks for. It is copied from its package
// internal/transport/readyreader.
type readyReader interface {
	ReadOnReady(bufSize int, pool mem.BufferPool) (b *[]byte, n int, err error)
}

var _ readyReader = (*Conn)(nil)

// countingPool counts the buffers in use. It never reuses a buffer, and overwrites it in Put, so
// that code that uses a buffer after putting it back finds it changed.
type countingPool struct {
	out, gets atomic.Int64
	last      atomic.Int64 // the length requested last
}

func (p *countingPool) Get(length int) *[]byte {
	p.out.Add(1)
	p.gets.Add(1)
	p.last.Store(int64(length))
	b := make([]byte, length)
	return &b
}

func (p *countingPool) Put(b *[]byte) {
	p.out.Add(-1)
	clear(*b)
}

// pairOf returns an accepted *Conn and its peer, a connection of package net.
func pairOf(t testing.TB, kind testnet.Kind) (*Conn, net.Conn) {
	t.Helper()
	server, client := testnet.Pair(t, listenAdapted, kind)
	c, ok := server.(*Conn)
	if !ok {
		t.Fatalf("Accept: got a %T, want a *Conn", server)
	}
	return c, client
}

// TestReadOnReadyHoldsNothingWhileItWaits checks that the buffer is taken when there is data and
// not before, and has the requested length.
func TestReadOnReadyHoldsNothingWhileItWaits(t *testing.T) {
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		c, client := pairOf(t, kind)
		pool := new(countingPool)
		for i := range 20 {
			type result struct {
				b   *[]byte
				n   int
				err error
			}
			done := make(chan result, 1)
			testnet.GoBlocked(t, "ReadOnReady", func() {
				b, n, err := c.ReadOnReady(1000+i, pool)
				done <- result{b, n, err}
			})
			if out := pool.out.Load(); out != 0 {
				t.Fatalf("round %d: got %d buffers out while it waits, want 0", i, out)
			}
			message := fmt.Sprintf("message %d", i)
			if _, err := io.WriteString(client, message); err != nil {
				t.Fatal(err)
			}
			r := testnet.Receive(t, "ReadOnReady", done)
			if r.err != nil || r.b == nil || string((*r.b)[:r.n]) != message {
				t.Fatalf("round %d: got %v, %d, %v, want %q", i, r.b, r.n, r.err, message)
			}
			if got := pool.last.Load(); got != int64(1000+i) {
				t.Errorf("round %d: asked the pool for %d bytes, want %d", i, got, 1000+i)
			}
			if out := pool.out.Load(); out != 1 {
				t.Errorf("round %d: got %d buffers out, want the one returned", i, out)
			}
			pool.Put(r.b)
		}
	})
}

// TestChannelzMakesNoReadSpeculative: grpc-go looks at the socket of each connection for channelz.
// If reads made needless system calls from then on, each would take a buffer for nothing: see
// RawControl in internal/loop/raw.go. (Reads of unix sockets always do.)
func TestChannelzMakesNoReadSpeculative(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := pairOf(t, testnet.TCP4)
	_ = socketOption(t, c, unix.SOL_SOCKET, unix.SO_RCVTIMEO)
	pool := new(countingPool)
	const rounds = 20
	for i := range rounds {
		done := make(chan error, 1)
		testnet.GoBlocked(t, "ReadOnReady", func() {
			b, _, err := c.ReadOnReady(100, pool)
			if err == nil {
				pool.Put(b)
			}
			done <- err
		})
		if _, err := io.WriteString(client, "x"); err != nil {
			t.Fatal(err)
		}
		if err := testnet.Receive(t, "ReadOnReady", done); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	// The first read may find nothing: ready may be left over from before.
	if got := pool.gets.Load(); got > rounds+1 {
		t.Errorf("%d reads took %d buffers, want one each", rounds, got)
	}
}

// TestReadOnReadyTakesAllThereIs reads with buffers shorter and longer than the data that was sent:
// no byte is lost, and each call reads once.
func TestReadOnReadyTakesAllThereIs(t *testing.T) {
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		c, client := pairOf(t, kind)
		want := pattern(300_000)
		go func() {
			client.Write(want)
			client.Close()
		}()
		pool := new(countingPool)
		var got []byte
		for size := 1; ; size = size*3%70_000 + 1 {
			b, n, err := c.ReadOnReady(size, pool)
			if err == io.EOF {
				break
			}
			if err != nil || n < 1 || n > size {
				t.Fatalf("after %d bytes: got %d of %d, %v", len(got), n, size, err)
			}
			got = append(got, (*b)[:n]...)
			pool.Put(b)
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %d bytes, want the %d that were sent", len(got), len(want))
		}
		if out := pool.out.Load(); out != 0 {
			t.Errorf("got %d buffers out at the end of the stream, want 0", out)
		}
	})
}

// TestReadOnReadyFailsAsRead puts connections into all states in which Read fails, and compares the
// errors.
func TestReadOnReadyFailsAsRead(t *testing.T) {
	for _, test := range []struct {
		name string
		want error // the error that it wraps
		set  func(c *Conn, client net.Conn)
	}{
		{"end of stream", io.EOF, func(c *Conn, client net.Conn) { client.Close() }},
		{"own half closed", io.EOF, func(c *Conn, client net.Conn) { c.CloseRead() }},
		{"deadline", os.ErrDeadlineExceeded, func(c *Conn, client net.Conn) { c.SetReadDeadline(time.Now().Add(time.Millisecond)) }},
		{"deadline in the past", os.ErrDeadlineExceeded, func(c *Conn, client net.Conn) { c.SetReadDeadline(time.Unix(1, 0)) }},
		{"closed", net.ErrClosed, func(c *Conn, client net.Conn) { c.Close() }},
		{"reset", syscall.ECONNRESET, func(c *Conn, client net.Conn) {
			client.(interface{ SetLinger(int) error }).SetLinger(0)
			client.Close()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			// Use two connections, because an error may be reported only once.
			c, client := pairOf(t, testnet.TCP4)
			test.set(c, client)
			_, want := c.Read(make([]byte, 10))
			c2, client2 := pairOf(t, testnet.TCP4)
			test.set(c2, client2)
			pool := new(countingPool)
			b, n, got := c2.ReadOnReady(10, pool)
			if b != nil || n != 0 {
				t.Errorf("got buffer %v and %d bytes, want none", b, n)
			}
			if describe(got) != describe(want) {
				t.Errorf("got error %s, want Read's, %s", describe(got), describe(want))
			}
			if !errors.Is(got, test.want) {
				t.Errorf("got error %v, want one that wraps %v", got, test.want)
			}
			if out := pool.out.Load(); out != 0 {
				t.Errorf("got %d buffers out, want 0", out)
			}
		})
	}
}

// describe returns the chain of an error without the addresses, which differ.
func describe(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && err == error(op) {
		return fmt.Sprintf("%T{%s %s} %s", op, op.Op, op.Net, describe(op.Err))
	}
	return fmt.Sprintf("%T{%v}", err, err)
}

// TestReadOnReadyIsWoken checks that Close, and a deadline set during the call, end a waiting call.
func TestReadOnReadyIsWoken(t *testing.T) {
	testnet.OnEachKind(t, func(t *testing.T, kind testnet.Kind) {
		for name, wake := range map[string]func(c *Conn) error{
			"closed":   func(c *Conn) error { c.Close(); return net.ErrClosed },
			"deadline": func(c *Conn) error { c.SetDeadline(time.Unix(1, 0)); return os.ErrDeadlineExceeded },
		} {
			c, _ := pairOf(t, kind)
			pool := new(countingPool)
			done := make(chan error, 1)
			testnet.GoBlocked(t, "ReadOnReady", func() {
				_, _, err := c.ReadOnReady(10, pool)
				done <- err
			})
			want := wake(c)
			if got := testnet.Receive(t, "ReadOnReady", done); !errors.Is(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
			if out := pool.out.Load(); out != 0 {
				t.Errorf("%s: got %d buffers out, want 0", name, out)
			}
		}
	})
}

// TestReadOnReadyConcurrently reads one connection from several goroutines, some of them with Read:
// each byte goes to exactly one of them.
func TestReadOnReadyConcurrently(t *testing.T) {
	testnet.NoLeaks(t)
	const total, readers = 200_000, 4
	c, client := pairOf(t, testnet.TCP4)
	go func() {
		b := make([]byte, 997)
		for i := range b {
			b[i] = 1
		}
		for sent := 0; sent < total; {
			n, err := client.Write(b[:min(len(b), total-sent)])
			sent += n
			if err != nil {
				return
			}
		}
		client.Close()
	}()
	var sum atomic.Int64
	pool := new(countingPool)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			own := make([]byte, 512)
			for {
				b, n, err := &own, 0, error(nil)
				if i%2 == 0 {
					n, err = c.Read(own)
				} else {
					b, n, err = c.ReadOnReady(512, pool)
				}
				if err != nil {
					if err != io.EOF {
						t.Errorf("reader %d: %v", i, err)
					}
					return
				}
				for _, x := range (*b)[:n] {
					sum.Add(int64(x))
				}
				if i%2 != 0 {
					pool.Put(b)
				}
			}
		})
	}
	wg.Wait()
	if got := sum.Load(); got != total {
		t.Errorf("got %d bytes, want %d", got, total)
	}
	if out := pool.out.Load(); out != 0 {
		t.Errorf("got %d buffers out, want 0", out)
	}
}

// TestReadOnReadyAllocatesNothing: a request must not cost garbage.
func TestReadOnReadyAllocatesNothing(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := pairOf(t, testnet.TCP4)
	pool := &fixedPool{b: make([]byte, 64)}
	message := []byte("x")
	allocs := 1.0
	for try := 0; allocs > 0 && try < 10; try++ { // the rest of the process may allocate meanwhile
		allocs = testing.AllocsPerRun(100, func() {
			if _, err := client.Write(message); err != nil {
				t.Fatal(err)
			}
			if _, n, err := c.ReadOnReady(64, pool); n != 1 || err != nil {
				t.Fatalf("got %d, %v, want 1", n, err)
			}
		})
	}
	if allocs != 0 {
		t.Errorf("got %v allocations per read, want 0", allocs)
	}
}

// fixedPool has one buffer.
type fixedPool struct{ b []byte }

func (p *fixedPool) Get(int) *[]byte { return &p.b }
func (p *fixedPool) Put(*[]byte)     {}

// TestConnHasAllOfPercore: the embedding must not be replaced with something that hides the methods
// that libraries look for.
func TestConnHasAllOfPercore(t *testing.T) {
	testnet.NoLeaks(t)
	c, _ := pairOf(t, testnet.TCP4)
	var conn net.Conn = c
	if _, ok := conn.(interface {
		io.ReaderFrom
		io.WriterTo
		CloseWrite() error
		SetKeepAliveConfig(net.KeepAliveConfig) error
		OnReadable(func(error)) error
		File() (*os.File, error)
	}); !ok {
		t.Errorf("%T lacks methods of %T", conn, new(percore.Conn))
	}
}
