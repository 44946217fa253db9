//go:build !percore_net

package grpcadapter

import (
	"context"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// tappedListener passes accepted connections on unchanged, and also gives them to the test.
type tappedListener struct {
	net.Listener
	accepted chan net.Conn
}

func (l *tappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.accepted <- c
	}
	return c, err
}

// socketOption reads a socket option of a connection from the kernel.
func socketOption(t *testing.T, c net.Conn, level, option int) int {
	t.Helper()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatalf("SyscallConn: %v", err)
	}
	var value int
	var optErr error
	if err := raw.Control(func(fd uintptr) { value, optErr = unix.GetsockoptInt(int(fd), level, option) }); err != nil || optErr != nil {
		t.Fatalf("getsockopt(%d, %d): %v, %v", level, option, err, optErr)
	}
	return value
}

func tcpUserTimeout(t *testing.T, c net.Conn) time.Duration {
	t.Helper()
	return time.Duration(socketOption(t, c, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)) * time.Millisecond
}

// TestServerUserTimeout compares with the value that grpc-go sets on package net's
// connections when the server has the same parameters.
func TestServerUserTimeout(t *testing.T) {
	for _, test := range []struct {
		name string
		kp   keepalive.ServerParameters
		want time.Duration
	}{
		{"default", keepalive.ServerParameters{}, 20 * time.Second},
		{"timeout", keepalive.ServerParameters{Timeout: 1234 * time.Millisecond}, 1234 * time.Millisecond},
		{"below a millisecond", keepalive.ServerParameters{Timeout: time.Microsecond}, 0},
		{"time", keepalive.ServerParameters{Time: time.Minute}, 20 * time.Second},
		{"never", keepalive.ServerParameters{Time: math.MaxInt64, Timeout: time.Second}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			observe := func(listen testnet.ListenFunc, start func(lis net.Listener)) time.Duration {
				tapped := &tappedListener{testnet.Listen(t, listen, testnet.TCP4), make(chan net.Conn, 10)}
				start(tapped)
				if err := callUnary(callContext(t), dialServer(t, tapped), nil); err != nil {
					t.Fatal(err)
				}
				return tcpUserTimeout(t, testnet.Receive(t, "a connection", tapped.accepted))
			}
			params := grpc.KeepaliveParams(test.kp)
			onNet := observe(net.Listen, func(lis net.Listener) { serveOn(t, lis, grpc.NewServer(params), &echo) })
			if onNet != test.want {
				t.Errorf("grpc-go %s sets %v on net, want %v", grpc.Version, onNet, test.want)
			}
			for name, start := range map[string]func(lis net.Listener){
				"Wrap":      func(lis net.Listener) { serveWrapped(t, lis, params) },
				"NewServer": func(lis net.Listener) { startOwn(t, lis, KeepaliveParams(test.kp)) },
			} {
				if got := observe(percore.Listen, start); got != onNet {
					t.Errorf("%s: got %v, want net's %v", name, got, onNet)
				}
			}
		})
	}
}

// TestUserTimeoutIsInherited: connections inherit the option from every socket of a listener, and it is
// set on those that were connected before the server began.
func TestUserTimeoutIsInherited(t *testing.T) {
	testnet.NoLeaks(t)
	lis := listenOnLoops(t, 3, testnet.TCP4)
	accepted := make(chan net.Conn)
	begun := make(chan int64, 3)
	const early = 16
	for range early {
		client := testnet.Dial(t, lis)
		defer client.Close()
	}
	go serveSockets(lis, func(l net.Listener) error {
		counted := countedListener{l, userTimeout(pingTimeout).ofListener(l)}
		for begun <- counted.timeout.left.Load(); ; {
			c, err := counted.Accept()
			if err != nil {
				return err
			}
			accepted <- c
		}
	})
	for range cap(begun) {
		if left := testnet.Receive(t, "the option being set", begun); left > early {
			t.Errorf("a socket's server sets the option on %d connections, want at most %d", left, early)
		}
	}
	for range early {
		c := testnet.Receive(t, "Accept", accepted)
		if got := tcpUserTimeout(t, c); got != pingTimeout {
			t.Errorf("connected before Serve: got %v, want %v", got, pingTimeout)
		}
		c.Close()
	}
	for range 16 {
		client := testnet.Dial(t, lis)
		c := testnet.Receive(t, "Accept", accepted)
		if got := tcpUserTimeout(t, c); got != pingTimeout {
			t.Errorf("got %v, want %v", got, pingTimeout)
		}
		c.Close()
		client.Close()
	}
}

// TestFallbackUserTimeout: where grpc-go's transport serves, connections have its default.
func TestFallbackUserTimeout(t *testing.T) {
	testnet.NoLeaks(t)
	lis := listenOnLoops(t, 2, testnet.TCP4)
	got := make(chan time.Duration, 1)
	plain := insecure.NewCredentials()
	creds := grpc.Creds(handshaking{plain, func(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
		got <- tcpUserTimeout(t, c)
		return plain.ServerHandshake(c)
	}})
	serveOn(t, lis, fallbackKind.make([]grpc.ServerOption{creds}, nil), &echo)
	if err := callUnary(callContext(t), dialServer(t, lis), nil); err != nil {
		t.Fatal(err)
	}
	if got := testnet.Receive(t, "the option", got); got != pingTimeout {
		t.Errorf("got %v, want %v", got, pingTimeout)
	}
}

// TestClientUserTimeout does the same as TestServerUserTimeout for clients.
func TestClientUserTimeout(t *testing.T) {
	for _, test := range []struct {
		name string
		kp   *keepalive.ClientParameters
		want time.Duration
	}{
		{"default", nil, 0},
		{"only a timeout", &keepalive.ClientParameters{Timeout: time.Second}, time.Second},
		{"never", &keepalive.ClientParameters{Time: math.MaxInt64, Timeout: time.Second}, 0},
		{"time", &keepalive.ClientParameters{Time: time.Minute}, 20 * time.Second},
		{"both", &keepalive.ClientParameters{Time: time.Minute, Timeout: 1500 * time.Millisecond}, 1500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := serveEcho(t)
			dialed := make(chan net.Conn, 1)
			tap := func(dial func(context.Context, string) (net.Conn, error)) func(context.Context, string) (net.Conn, error) {
				return func(ctx context.Context, address string) (net.Conn, error) {
					c, err := dial(ctx, address)
					if err == nil {
						dialed <- c
					}
					return c, err
				}
			}
			observe := func(cc grpc.ClientConnInterface) time.Duration {
				if err := callUnary(callContext(t), cc, nil); err != nil {
					t.Fatal(err)
				}
				return tcpUserTimeout(t, testnet.Receive(t, "a connection", dialed))
			}
			onNet := tap(func(ctx context.Context, address string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", address)
			})
			theirs, ours := []grpc.DialOption{grpc.WithContextDialer(onNet)}, []ClientOption(nil)
			if test.kp != nil {
				theirs = append(theirs, grpc.WithKeepaliveParams(*test.kp))
				ours = append(ours, WithKeepaliveParams(*test.kp))
			}
			want := observe(dialServer(t, lis, theirs...))
			if want != test.want {
				t.Errorf("grpc-go %s sets %v on net, want %v", grpc.Version, want, test.want)
			}
			for name, dial := range map[string]func(context.Context, string) (net.Conn, error){
				"net": onNet, "percore": tap(defaultDialer.DialTarget),
			} {
				if got := observe(dialClient(t, lis, append(ours, WithContextDialer(dial))...)); got != want {
					t.Errorf("%s: got %v, want grpc-go's %v", name, got, want)
				}
			}
		})
	}
}

// TestDialerKeepAlive compares the keep-alive of dialed connections with the keep-alive that
// grpc-go's own dialer sets, as the server's end sees neither.
func TestDialerKeepAlive(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	c, err := defaultDialer.DialTarget(callContext(t), lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// The dialer of grpc-go is in an internal package: it sets keep-alive without any parameter.
	own := &net.Dialer{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1) })
	}}
	nc, err := own.DialContext(callContext(t), "tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, o := range []struct {
		name          string
		level, option int
	}{
		{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE},
		{"TCP_KEEPIDLE", unix.IPPROTO_TCP, unix.TCP_KEEPIDLE},
		{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL},
		{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT},
		{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY},
	} {
		if got, want := socketOption(t, c, o.level, o.option), socketOption(t, nc, o.level, o.option); got != want {
			t.Errorf("%s: got %d, want grpc-go's %d", o.name, got, want)
		}
	}
}
