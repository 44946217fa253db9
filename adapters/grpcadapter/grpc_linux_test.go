//go:build !percore_net

package grpcadapter

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// spiedConn counts the bytes read in each of the two ways.
type spiedConn struct {
	*Conn
	byRead, byReady *atomic.Int64
}

func (c *spiedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.byRead.Add(int64(n))
	return n, err
}

func (c *spiedConn) ReadOnReady(bufSize int, pool mem.BufferPool) (*[]byte, int, error) {
	b, n, err := c.Conn.ReadOnReady(bufSize, pool)
	c.byReady.Add(int64(n))
	return b, n, err
}

// spiedListener accepts spiedConns.
type spiedListener struct {
	net.Listener
	byRead, byReady atomic.Int64
}

func (l *spiedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &spiedConn{c.(*Conn), &l.byRead, &l.byReady}, nil
}

// TestServerReadsOnReady fails when a version of grpc-go stops using ReadOnReady on the server's
// side. Then idle connections hold a buffer again, and the adapter must learn the new way.
func TestServerReadsOnReady(t *testing.T) {
	testnet.NoLeaks(t)
	lis := &spiedListener{Listener: testnet.Listen(t, listenAdapted, testnet.TCP4)}
	startServer(t, plainServe, lis)
	const size = 10_000
	if err := callUnary(callContext(t), dialServer(t, lis), pattern(size)); err != nil {
		t.Fatal(err)
	}
	// Only the client's preface is read before there is a reader.
	if got, want := lis.byRead.Load(), int64(len(clientPreface)); got != want {
		t.Errorf("grpc-go %s read %d bytes by Read, want the %d of the preface", grpc.Version, got, want)
	}
	if got := lis.byReady.Load(); got < size {
		t.Errorf("grpc-go %s read %d bytes by ReadOnReady, want at least %d", grpc.Version, got, size)
	}
}

// TestClientReadsOnReady does the same as TestServerReadsOnReady for the client's side.
func TestClientReadsOnReady(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, listenAdapted, testnet.TCP4)
	startServer(t, plainServe, lis)
	var byRead, byReady atomic.Int64
	d := newDialing(nil)
	cc := dialServer(t, lis, append(DialOptions(), grpc.WithContextDialer(func(ctx context.Context, target string) (net.Conn, error) {
		c, err := d.dial(ctx, target)
		if err != nil {
			return nil, err
		}
		return &spiedConn{c.(*Conn), &byRead, &byReady}, nil
	}))...)
	const size = 10_000
	if err := callUnary(callContext(t), cc, pattern(size)); err != nil {
		t.Fatal(err)
	}
	if got := byRead.Load(); got != 0 {
		t.Errorf("grpc-go %s read %d bytes by Read, want 0", grpc.Version, got)
	}
	if got := byReady.Load(); got < size {
		t.Errorf("grpc-go %s read %d bytes by ReadOnReady, want at least %d", grpc.Version, got, size)
	}
}

// readBufferBytes is the size of grpc-go's read buffer (defaultReadBufSize).
const readBufferBytes = 32 << 10

// TestIdleConnectionHoldsNoReadBuffer compares the heap of idle connections that have been read
// from. On percore alone grpc-go holds a read buffer for each, and here it must not. The difference
// between the two shows that the measurement works.
func TestIdleConnectionHoldsNoReadBuffer(t *testing.T) {
	testnet.NoLeaks(t)
	onPercore := idleHeap(t, percore.Listen, nil)
	withAdapter := idleHeap(t, listenAdapted, nil)
	t.Logf("heap per idle connection, a bare client's end included: %d bytes on percore, %d with the adapter", onPercore, withAdapter)
	if saved := onPercore - withAdapter; saved < readBufferBytes*9/10 {
		t.Errorf("got %d bytes per idle connection on percore and %d with the adapter, want some %d fewer", onPercore, withAdapter, readBufferBytes)
	}
	if withAdapter > readBufferBytes*9/10 {
		t.Errorf("got %d bytes per idle connection, want less than a read buffer's %d", withAdapter, readBufferBytes)
	}
}

// TestIdleTLSConnectionHoldsNoReadBuffer does the same for TLS and Credentials.
func TestIdleTLSConnectionHoldsNoReadBuffer(t *testing.T) {
	testnet.NoLeaks(t)
	before := idleHeap(t, listenAdapted, credentials.NewTLS)
	after := idleHeap(t, listenAdapted, sparingTLS)
	t.Logf("heap per idle connection, a bare client's end included: %d bytes with TLS, %d with Credentials", before, after)
	if saved := before - after; saved < readBufferBytes*9/10 {
		t.Errorf("got %d bytes per idle connection with TLS and %d with Credentials, want some %d fewer", before, after, readBufferBytes)
	}
}

// sparingTLS makes TLS credentials that hold no read buffer.
func sparingTLS(config *tls.Config) credentials.TransportCredentials {
	return Credentials(credentials.NewTLS(config))
}

// idleHeap returns the heap bytes per connection after each has answered a ping.
// The clients are bare sockets; their TLS state is dropped.
func idleHeap(t testing.TB, listen testnet.ListenFunc, secure func(*tls.Config) credentials.TransportCredentials) int64 {
	const connections = 200
	serverCredentials := insecure.NewCredentials()
	serverConfig, clientConfig := testnet.TLS(t)
	if secure != nil {
		serverCredentials = secure(serverConfig)
		clientConfig.NextProtos = []string{"h2"}
	}
	lis := testnet.Listen(t, listen, testnet.TCP4)
	srv := startServer(t, plainServe, lis, grpc.Creds(serverCredentials))
	clients := make([]net.Conn, connections)
	before := restingHeap(t)
	for i := range clients {
		c := testnet.Dial(t, lis)
		clients[i] = c
		if secure != nil {
			c = tls.Client(c, clientConfig)
		}
		if err := ping(c); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	after := int64(testnet.HeapBytes())
	runtime.KeepAlive(clients)
	srv.Stop()
	for _, c := range clients {
		c.Close()
	}
	return (after - before) / connections
}

// restingHeap is testnet.HeapBytes, when what is left of earlier tests has been freed.
func restingHeap(t testing.TB) (bytes int64) {
	bytes = math.MaxInt64
	testnet.Eventually(t, "a heap that rests", func() bool {
		before := bytes
		bytes = int64(testnet.HeapBytes())
		return before-bytes < 10<<10
	})
	return bytes
}

// Some HTTP/2 frames (RFC 9113, section 6).
const (
	settings0   = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	settingsAck = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	pingFrame   = "\x00\x00\x08\x06\x00\x00\x00\x00\x00PERCORE!"
)

// ping speaks just enough HTTP/2 to get an answer to a ping. The answer proves that the server has
// read everything.
func ping(c net.Conn) error {
	if _, err := io.WriteString(c, clientPreface+settings0+settingsAck+pingFrame); err != nil {
		return err
	}
	const frameType, flags, typePing, flagAck = 3, 4, 6, 1
	for {
		header := make([]byte, 9)
		if _, err := io.ReadFull(c, header); err != nil {
			return fmt.Errorf("waiting for the answer to the ping: %w", err)
		}
		length := int64(binary.BigEndian.Uint32(header) >> 8)
		if _, err := io.CopyN(io.Discard, c, length); err != nil {
			return fmt.Errorf("in the middle of a frame: %w", err)
		}
		if header[frameType] == typePing && header[flags] == flagAck {
			return nil
		}
	}
}

// BenchmarkIdle reports how much heap an idle connection needs; its time means nothing.
func BenchmarkIdle(b *testing.B) {
	for _, arm := range []struct {
		name   string
		listen testnet.ListenFunc
		secure func(*tls.Config) credentials.TransportCredentials
	}{
		{"net", net.Listen, nil},
		{"percore", percore.Listen, nil},
		{"adapter", listenAdapted, nil},
		{"net/TLS", net.Listen, credentials.NewTLS},
		{"percore/TLS", percore.Listen, credentials.NewTLS},
		{"adapter/TLS", listenAdapted, credentials.NewTLS},
		{"adapter/TLS with Credentials", listenAdapted, sparingTLS},
	} {
		b.Run(arm.name, func(b *testing.B) {
			var bytes int64
			for b.Loop() {
				bytes = idleHeap(b, arm.listen, arm.secure)
			}
			b.ReportMetric(float64(bytes), "heap-B/conn")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkUnary measures a small call over one connection, with both ends in this process.
func BenchmarkUnary(b *testing.B) {
	serverConfig, clientConfig := testnet.TLS(b)
	secured := func(tls func(*tls.Config) credentials.TransportCredentials) []grpc.ServerOption {
		return []grpc.ServerOption{grpc.Creds(tls(serverConfig))}
	}
	trusting := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(clientConfig))}
	for _, arm := range []struct {
		name   string
		listen testnet.ListenFunc
		server []grpc.ServerOption
		client []grpc.DialOption
	}{
		{"net", net.Listen, nil, nil},
		{"percore", percore.Listen, nil, nil},
		{"adapter", listenAdapted, ServerOptions(), nil},
		{"adapter both ends", listenAdapted, ServerOptions(), DialOptions()},
		{"net TLS", net.Listen, secured(credentials.NewTLS), trusting},
		{"adapter TLS", listenAdapted, append(ServerOptions(), secured(credentials.NewTLS)...), trusting},
		{"adapter TLS with Credentials", listenAdapted, append(ServerOptions(), secured(sparingTLS)...), trusting},
	} {
		for _, size := range []int{128, 1 << 20} {
			b.Run(fmt.Sprintf("%s/%d", arm.name, size), func(b *testing.B) {
				lis := testnet.Listen(b, arm.listen, testnet.TCP4)
				startServer(b, plainServe, lis, arm.server...)
				cc := dialServer(b, lis, arm.client...)
				message := pattern(size)
				ctx := context.Background()
				b.SetBytes(int64(2 * size))
				b.ReportAllocs()
				for b.Loop() {
					if err := callUnary(ctx, cc, message); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// TestClientAbstract: the addresses of the scheme unix-abstract are those of unix sockets without a
// file, also for a dialer of the user's, which gets them as grpc-go passes them.
func TestClientAbstract(t *testing.T) {
	name := fmt.Sprintf("percore test %d", os.Getpid())
	lis, err := percore.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	startOwn(t, lis)
	target := "unix-abstract:" + name
	if err := callEcho(callContext(t), newTestClient(t, target), pattern(10)); err != nil {
		t.Errorf("without a dialer: %v", err)
	}
	var got []string
	dial := func(ctx context.Context, addr string) (net.Conn, error) {
		got = append(got, addr)
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(addr, "unix:"))
	}
	theirs, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(dial))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	for _, cc := range []grpc.ClientConnInterface{theirs, newTestClient(t, target, WithContextDialer(dial))} {
		if err := callEcho(callContext(t), cc, pattern(10)); err != nil {
			t.Errorf("with a dialer: %v", err)
		}
	}
	if len(got) != 2 || got[0] != got[1] {
		t.Errorf("the dialers got %q, want the same twice", got)
	}
}
