//go:build !percore_net

package grpcadapter

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// readSpy counts the bytes that a server's connections read in each of the two ways.
type readSpy struct {
	credentials.TransportCredentials
	byRead, byReady atomic.Int64
}

// ServerHandshake makes the server read through the spy.
func (s *readSpy) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if ready, ok := raw.(*readyConn); ok {
		return &spiedConn{ready, s}, nil, nil
	}
	return s.TransportCredentials.ServerHandshake(raw)
}

// Clone returns the spy itself.
func (s *readSpy) Clone() credentials.TransportCredentials { return s }

type spiedConn struct {
	*readyConn
	spy *readSpy
}

func (c *spiedConn) Read(b []byte) (int, error) {
	n, err := c.readyConn.Read(b)
	c.spy.byRead.Add(int64(n))
	return n, err
}

func (c *spiedConn) ReadOnReady(bufSize int, pool mem.BufferPool) (*[]byte, int, error) {
	b, n, err := c.readyConn.ReadOnReady(bufSize, pool)
	c.spy.byReady.Add(int64(n))
	return b, n, err
}

// TestFallbackReadsOnReady fails when a version of grpc-go stops using ReadOnReady. Then idle
// connections hold a buffer again, and readyConn must learn the new way.
func TestFallbackReadsOnReady(t *testing.T) {
	for _, loops := range []int{1, 3} {
		testnet.NoLeaks(t)
		spy := &readSpy{TransportCredentials: insecure.NewCredentials()}
		lis := listenOnLoops(t, loops, testnet.TCP4)
		startServer(t, serveByGRPC, lis, grpc.Creds(spy))
		const size = 10_000
		if err := callUnary(callContext(t), dialServer(t, lis), pattern(size)); err != nil {
			t.Fatal(err)
		}
		// Only the client's preface is read before there is a reader.
		if got, want := spy.byRead.Load(), int64(len(clientPreface)); got != want {
			t.Errorf("grpc-go %s read %d bytes by Read, want the %d of the preface", grpc.Version, got, want)
		}
		if got := spy.byReady.Load(); got < size {
			t.Errorf("grpc-go %s read %d bytes by ReadOnReady, want at least %d", grpc.Version, got, size)
		}
	}
}

// countingPool counts the buffers in use.
type countingPool struct{ out, gets atomic.Int64 }

func (p *countingPool) Get(length int) *[]byte {
	p.out.Add(1)
	p.gets.Add(1)
	b := make([]byte, length)
	return &b
}

func (p *countingPool) Put(*[]byte) { p.out.Add(-1) }

// TestReadOnReady: a buffer is taken when there is data and not before, also when grpc-go has looked at
// the connection's socket for channelz, and not for an error.
func TestReadOnReady(t *testing.T) {
	testnet.NoLeaks(t)
	server, client := testnet.Pair(t, percore.Listen, testnet.TCP4)
	c, pool := &readyConn{server.(*percore.Conn)}, new(countingPool)
	_ = socketOption(t, c, unix.SOL_SOCKET, unix.SO_RCVTIMEO)
	const rounds = 20
	for i := range rounds {
		done := make(chan string, 1)
		testnet.GoBlocked(t, "ReadOnReady", func() {
			b, n, err := c.ReadOnReady(1000+i, pool)
			if b == nil || len(*b) != 1000+i {
				done <- fmt.Sprint("a wrong buffer, ", err)
				return
			}
			done <- string((*b)[:n])
		})
		if out := pool.out.Load(); out != int64(i) {
			t.Fatalf("round %d: %d buffers are out while it waits", i, out)
		}
		message := fmt.Sprintf("message %d", i)
		if _, err := io.WriteString(client, message); err != nil {
			t.Fatal(err)
		}
		if got := testnet.Receive(t, "ReadOnReady", done); got != message {
			t.Fatalf("round %d: got %q, want %q", i, got, message)
		}
	}
	// The first read may find nothing: ready may be left over from before.
	if got := pool.gets.Load(); got > rounds+1 {
		t.Errorf("%d reads took %d buffers, want one each", rounds, got)
	}
	for _, test := range []struct {
		want error
		end  func()
	}{
		{os.ErrDeadlineExceeded, func() { c.SetReadDeadline(time.Unix(1, 0)) }},
		{io.EOF, func() { c.SetReadDeadline(time.Time{}); client.Close() }},
		{net.ErrClosed, func() { c.Close() }},
	} {
		test.end()
		if b, n, err := c.ReadOnReady(10, pool); b != nil || n != 0 || !errors.Is(err, test.want) {
			t.Errorf("got %v, %d, %v, want no buffer and %v", b, n, err, test.want)
		}
	}
	if out := pool.out.Load(); out != rounds {
		t.Errorf("%d buffers are out, want the %d that were returned", out, rounds)
	}
}
