package grpcadapter

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// A calledPath notes the interceptors that a call has passed.
type calledPath struct {
	mu     sync.Mutex
	passed []string
}

func (p *calledPath) add(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed = append(p.passed, name)
}

func (p *calledPath) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	passed := p.passed
	p.passed = nil
	return passed
}

// redirects returns interceptors that hand calls to what to returns for the ClientConn that they get.
func redirects(path *calledPath, name string, to func(own *grpc.ClientConn) *grpc.ClientConn) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			path.add(name)
			return invoke(ctx, method, req, reply, to(cc), opts...)
		}, func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			path.add(name)
			return streamer(ctx, desc, to(cc), method, opts...)
		}
}

// TestClientRedirects: an interceptor that hands a call to another ClientConn has that one make it,
// past its interceptors, as with grpc-go.
func TestClientRedirects(t *testing.T) {
	testnet.NoLeaks(t)
	var path calledPath
	var addrs [3]string
	var listeners [3]net.Listener
	for i := range listeners {
		listeners[i] = testnet.Listen(t, percore.Listen, testnet.TCP4)
		startOwn(t, listeners[i])
		addrs[i] = listeners[i].Addr().String()
	}
	own := func(cc *grpc.ClientConn) *grpc.ClientConn { return cc }
	theirUnary, theirStream := redirects(&path, "theirs", own)
	theirs := dialServer(t, listeners[1], grpc.WithUnaryInterceptor(theirUnary), grpc.WithStreamInterceptor(theirStream))
	var second *grpc.ClientConn // of a Client
	secondUnary, secondStream := redirects(&path, "second", func(cc *grpc.ClientConn) *grpc.ClientConn { second = cc; return cc })
	if err := callEcho(callContext(t), dialClient(t, listeners[2], WithUnaryInterceptor(secondUnary), WithStreamInterceptor(secondStream)), nil); err != nil {
		t.Fatal(err)
	}
	path.take()
	for name, test := range map[string]struct {
		to   func(*grpc.ClientConn) *grpc.ClientConn
		want string
	}{
		"its own":          {own, addrs[0]},
		"grpc-go's":        {func(*grpc.ClientConn) *grpc.ClientConn { return theirs }, addrs[1]},
		"that of a Client": {func(*grpc.ClientConn) *grpc.ClientConn { return second }, addrs[2]},
	} {
		unary, stream := redirects(&path, "first", test.to)
		for kind, cc := range map[string]grpc.ClientConnInterface{
			"grpc-go": dialServer(t, listeners[0], grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)),
			"ours":    dialClient(t, listeners[0], WithUnaryInterceptor(unary), WithStreamInterceptor(stream)),
		} {
			if kind == "grpc-go" && test.want == addrs[2] {
				continue // it knows nothing of Clients
			}
			var from peer.Peer
			if err := callEcho(callContext(t), cc, []byte("x"), grpc.Peer(&from)); err != nil || fmt.Sprint(from.Addr) != test.want {
				t.Errorf("%s, %s: got %v from %v, want an answer from %s", name, kind, err, from.Addr, test.want)
			}
			s, err := cc.NewStream(callContext(t), &echo.Streams[0], "/percore.test.Echo/Chat")
			if err != nil {
				t.Fatal(err)
			}
			if err := say(s, []byte("y")); err != nil {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			if p, _ := peer.FromContext(s.Context()); p == nil || p.Addr.String() != test.want {
				t.Errorf("%s, %s: got the peer %v of a stream, want %s", name, kind, p, test.want)
			}
			if passed := path.take(); !slices.Equal(passed, []string{"first", "first"}) {
				t.Errorf("%s, %s: the calls have passed %q", name, kind, passed)
			}
		}
	}
}

// TestClientConnOfInterceptors: the ClientConn that interceptors get makes calls as the client does, and
// never connects by itself.
func TestClientConnOfInterceptors(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis)
	var path calledPath
	var cc *grpc.ClientConn
	unary, stream := redirects(&path, "first", func(own *grpc.ClientConn) *grpc.ClientConn { cc = own; return own })
	dials := make(chan string, 10)
	c := newTestClient(t, "passthrough:///server", WithUnaryInterceptor(unary), WithStreamInterceptor(stream),
		WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials <- addr
			return new(net.Dialer).DialContext(ctx, "tcp", lis.Addr().String())
		}))
	c.conn.Connect()
	for ctx := callContext(t); c.GetState() != connectivity.Ready; {
		if !c.WaitForStateChange(ctx, c.GetState()) {
			t.Fatalf("got the state %v behind Connect, want READY", c.GetState())
		}
	}
	if err := callEcho(callContext(t), c, nil); err != nil {
		t.Fatal(err)
	}
	if cc != c.conn || cc.Target() != c.Target() || cc.CanonicalTarget() != c.CanonicalTarget() {
		t.Errorf("got a ClientConn of %s, %s", cc.Target(), cc.CanonicalTarget())
	}
	if err := callEcho(callContext(t), cc, []byte("x")); err != nil {
		t.Error(err)
	}
	s, err := cc.NewStream(callContext(t), &echo.Streams[0], "/percore.test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	if err := say(s, []byte("y")); err != nil {
		t.Error(err)
	}
	if got, passed := c.Stats(), path.take(); got.Started != 3 || len(passed) != 3 || len(dials) != 1 {
		t.Errorf("the client has made %d calls past %q with %d dials, want 3, all interceptors, 1", got.Started, passed, len(dials))
	}
	c.Close()
	if err := callEcho(callContext(t), cc, nil); status.Code(err) != codes.Canceled {
		t.Errorf("got %v of a client that is closed, want Canceled", err)
	}
}

// TestClientConnTargets: the ClientConn of interceptors understands the target as its client does.
func TestClientConnTargets(t *testing.T) {
	testnet.NoLeaks(t)
	unary, _ := redirects(new(calledPath), "", nil)
	for _, target := range []string{"host:1", "dns:///host:1", "passthrough:///host", "unix:/path", "unknown:x", "host", "", "///x"} {
		theirs, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer theirs.Close()
		c := newTestClient(t, target, WithUnaryInterceptor(unary))
		if got, want := c.conn.CanonicalTarget(), theirs.CanonicalTarget(); got != want || c.CanonicalTarget() != want || c.conn.Target() != target {
			t.Errorf("%q: got %q and %q, want %q", target, got, c.CanonicalTarget(), want)
		}
	}
}
