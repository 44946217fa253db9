package grpcadapter

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/percore/percore/internal/testnet"
)

// onReady has the signature of ReadOnReady.
type onReady interface {
	net.Conn
	ReadOnReady(bufSize int, pool mem.BufferPool) (b *[]byte, n int, err error)
}

// sparePair returns both ends of a TLS connection, the server's with Credentials.
func sparePair(t *testing.T, listen testnet.ListenFunc) (onReady, *tls.Conn) {
	t.Helper()
	server, client := testnet.Pair(t, listen, testnet.TCP4)
	serverConfig, clientConfig := testnet.TLS(t)
	clientConfig.NextProtos = []string{"h2"}
	tc := tls.Client(client, clientConfig)
	handshake := make(chan error, 1)
	go func() { handshake <- tc.Handshake() }()
	conn, _, err := Credentials(credentials.NewTLS(serverConfig)).ServerHandshake(server)
	if err = errors.Join(err, testnet.Receive(t, "the client's handshake", handshake)); err != nil {
		t.Fatalf("handshake: %v", err)
	}
	ready, ok := conn.(onReady)
	if !ok {
		t.Fatalf("got a %T, want one that can wait", conn)
	}
	if _, ok := conn.(syscall.Conn); !ok {
		t.Errorf("got a %T, want one that can be asked for its socket", conn)
	}
	return ready, tc
}

// TestSparingReads sends records of all sizes and reads them with buffers of all sizes. No byte is
// lost or comes twice, and all buffers come back. A read that waits holds no buffer, except after a
// read that filled its buffer.
func TestSparingReads(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := sparePair(t, listenAdapted)
	want := pattern(300_000)
	go func() {
		for i, size := 0, 1; i < len(want); size = size*3%33_000 + 1 {
			n, err := client.Write(want[i:min(i+size, len(want))])
			if err != nil {
				return
			}
			i += n
		}
		client.CloseWrite()
	}()
	pool := new(balancePool)
	var got []byte
	for size := 1; ; size = size*5%40_000 + 1 {
		b, n, err := c.ReadOnReady(size, pool)
		if n > 0 {
			got = append(got, (*b)[:n]...)
			pool.Put(b)
		} else if b != nil {
			t.Fatalf("got a buffer for nothing, and %v", err)
		}
		if err == io.EOF {
			break
		}
		if err != nil || n > size {
			t.Fatalf("after %d bytes: got %d of %d, %v", len(got), n, size, err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d bytes, want the %d that were sent", len(got), len(want))
	}
	if out := pool.out.Load(); out != 0 {
		t.Errorf("got %d buffers out at the end, want 0", out)
	}
}

// TestSparingReadWaitsWithoutBuffer: no buffer is in use between messages, and a deadline and Close
// end the wait.
func TestSparingReadWaitsWithoutBuffer(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := sparePair(t, listenAdapted)
	pool := new(balancePool)
	done := make(chan error, 1)
	begin := func() {
		testnet.GoBlocked(t, "ReadOnReady", func() {
			b, n, err := c.ReadOnReady(32<<10, pool)
			if n > 0 {
				pool.Put(b)
			}
			done <- err
		})
		if out := pool.out.Load(); out != 0 {
			t.Errorf("got %d buffers out while it waits, want 0", out)
		}
	}
	for _, size := range []int{1, 100, firstBytes - 1, 1, firstBytes + 1000, 5} {
		if _, err := client.Write(pattern(size)); err != nil {
			t.Fatal(err)
		}
		for left := size; left > 0; {
			b, n, err := c.ReadOnReady(32<<10, pool)
			if err != nil {
				t.Fatal(err)
			}
			pool.Put(b)
			left -= n
		}
		begin()
		if _, err := client.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := testnet.Receive(t, "ReadOnReady", done); err != nil {
			t.Fatal(err)
		}
	}
	begin()
	c.SetReadDeadline(time.Unix(1, 0))
	if err := testnet.Receive(t, "ReadOnReady", done); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
	}
	c.Close()
	if b, n, err := c.ReadOnReady(10, pool); b != nil || n != 0 || err == nil {
		t.Errorf("after Close: got %v, %d, %v, want an error only", b, n, err)
	}
}

// balancePool counts the buffers in use.
type balancePool struct{ out atomic.Int64 }

func (p *balancePool) Get(length int) *[]byte {
	p.out.Add(1)
	b := make([]byte, length)
	return &b
}

func (p *balancePool) Put(*[]byte) { p.out.Add(-1) }

// TestCredentialsAreTheSame: Credentials describe themselves like the credentials they wrap, and
// leave a connection alone if the handshake put nothing on top of it.
func TestCredentialsAreTheSame(t *testing.T) {
	testnet.NoLeaks(t)
	inner := credentials.NewTLS(&tls.Config{ServerName: "example.com"})
	outer := Credentials(inner)
	for _, c := range []credentials.TransportCredentials{outer, outer.Clone()} {
		if got, want := c.Info(), inner.Info(); got != want {
			t.Errorf("Info: got %+v, want %+v", got, want)
		}
		if _, ok := c.(*sparingCredentials); !ok {
			t.Errorf("got %T, want the same as before", c)
		}
	}
	server, client := testnet.Pair(t, net.Listen, testnet.TCP4)
	plain := Credentials(insecure.NewCredentials())
	if got, _, err := plain.ServerHandshake(server); got != server || err != nil {
		t.Errorf("insecure, server: got %T, %v, want the connection itself", got, err)
	}
	if got, _, err := plain.ClientHandshake(context.Background(), "", client); got != client || err != nil {
		t.Errorf("insecure, client: got %T, %v, want the connection itself", got, err)
	}
	client.Close() // makes the TLS handshake fail
	if got, _, err := outer.ServerHandshake(server); got != nil || err == nil {
		t.Errorf("a handshake that fails: got %v, %v, want an error only", got, err)
	}
	xds := usesXDS{inner}
	if got := Credentials(xds); got != credentials.TransportCredentials(xds) {
		t.Errorf("credentials of xDS: got %T, want themselves", got)
	}
}

// usesXDS makes gRPC take the credentials for xDS credentials.
type usesXDS struct {
	credentials.TransportCredentials
}

func (usesXDS) UsesXDS() bool { return true }

// deafCreds read until the connection ends, whatever the context says.
type deafCreds struct {
	credentials.TransportCredentials
	begun chan struct{}
	ended chan error
}

func (c deafCreds) ClientHandshake(_ context.Context, _ string, nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c.begun <- struct{}{}
	_, err := io.Copy(io.Discard, nc)
	c.ended <- err
	return nc, nil, err
}

// TestClientEndsHandshake: Close ends a handshake of credentials that don't look at the context, as in
// grpc-go.
func TestClientEndsHandshake(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	creds := deafCreds{insecure.NewCredentials(), make(chan struct{}, 1), make(chan error, 1)}
	c := dialClient(t, lis, WithTransportCredentials(creds))
	c.Connect()
	testnet.Receive(t, "the handshake", creds.begun)
	c.Close()
	if err := testnet.Receive(t, "the handshake's end", creds.ended); !errors.Is(err, net.ErrClosed) {
		t.Errorf("it has ended with %v, want %v", err, net.ErrClosed)
	}
}
