//go:build !percore_net

package grpcadapter

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

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
		serveOn(t, lis, fallbackKind.make([]grpc.ServerOption{grpc.Creds(spy)}, nil), &echo)
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
type countingPool struct{ out atomic.Int64 }

func (p *countingPool) Get(length int) *[]byte {
	p.out.Add(1)
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
	for _, want := range []string{"one message", "another", "<nil> 0 EOF"} {
		got, out := make(chan string, 1), pool.out.Load()
		testnet.GoBlocked(t, "ReadOnReady", func() {
			b, n, err := c.ReadOnReady(1000, pool)
			if err != nil || len(*b) != 1000 {
				got <- fmt.Sprint(b, n, err)
				return
			}
			got <- string((*b)[:n])
		})
		if now := pool.out.Load(); now != out {
			t.Fatalf("%d buffers are out while it waits, want %d", now, out)
		}
		if strings.HasSuffix(want, "EOF") {
			client.Close()
		} else if _, err := io.WriteString(client, want); err != nil {
			t.Fatal(err)
		}
		if got := testnet.Receive(t, "ReadOnReady", got); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	if out := pool.out.Load(); out != 2 {
		t.Errorf("%d buffers are out, want the 2 that were returned", out)
	}
}
