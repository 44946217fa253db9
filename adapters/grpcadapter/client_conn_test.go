package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// redirects returns interceptors that hand calls to what to returns for the ClientConn that they get.
func redirects(path *noted, name string, to func(own *grpc.ClientConn) *grpc.ClientConn) (grpc.UnaryClientInterceptor, grpc.StreamClientInterceptor) {
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
	var path noted // the interceptors that a call has passed
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
	if err := callUnary(callContext(t), dialClient(t, listeners[2], WithChainUnaryInterceptor(secondUnary), WithChainStreamInterceptor(secondStream)), nil); err != nil {
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
			"ours":    dialClient(t, listeners[0], WithChainUnaryInterceptor(unary), WithChainStreamInterceptor(stream)),
		} {
			var from peer.Peer
			if kind == "grpc-go" && test.want == addrs[2] { // it knows nothing of Clients
				if err := callUnary(callContext(t), cc, nil, grpc.WaitForReady(true)); status.Code(err) != codes.Unavailable {
					t.Errorf("%s, %s: got %v, want Unavailable", name, kind, err)
				}
				path.take()
				continue
			}
			if err := callUnary(callContext(t), cc, []byte("x"), grpc.Peer(&from)); err != nil || fmt.Sprint(from.Addr) != test.want {
				t.Errorf("%s, %s: got %v from %v, want an answer from %s", name, kind, err, from.Addr, test.want)
			}
			s := openChat(t, callContext(t), cc)
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

// TestClientConn: there is one ClientConn of a Client, its interceptors get it, and it makes calls as
// the client does. It is not made before it is wanted, and never connects by itself.
func TestClientConn(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	var path noted // the interceptors that a call has passed
	var seen *grpc.ClientConn
	unary, stream := redirects(&path, "first", func(own *grpc.ClientConn) *grpc.ClientConn { seen = own; return own })
	for _, opts := range [][]ClientOption{nil, {WithChainUnaryInterceptor(unary), WithChainStreamInterceptor(stream)}} {
		dials := make(chan string, 10)
		c := newTestClient(t, "passthrough:///server", append(opts, WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			dials <- addr
			return new(net.Dialer).DialContext(ctx, "tcp", lis.Addr().String())
		}))...)
		if (c.conn != nil) != (opts != nil) {
			t.Errorf("with %d options the Client has the ClientConn %p", len(opts), c.conn)
		}
		conns := make(chan *grpc.ClientConn, 8)
		for range cap(conns) {
			go func() { conns <- c.ClientConn() }()
		}
		cc := c.ClientConn()
		for range cap(conns) {
			if got := <-conns; got != cc {
				t.Errorf("got two ClientConns, %p and %p", got, cc)
			}
		}
		cc.Connect()
		awaitState(t, cc, connectivity.Ready)
		for i, caller := range []grpc.ClientConnInterface{c, cc} {
			if err := callUnary(callContext(t), caller, []byte("x")); err != nil {
				t.Error(err)
			}
			s := openChat(t, callContext(t), caller)
			if err := say(s, []byte("y")); err != nil {
				t.Error(err)
			}
			if got, passed := c.Stats(), path.take(); int(got.Started) != 2*i+2 || len(passed) != len(opts) || len(dials) != 1 {
				t.Errorf("the client has made %d calls past %q with %d dials, want %d, all interceptors, 1", got.Started, passed, len(dials), 2*i+2)
			}
		}
		if opts != nil && seen != cc {
			t.Errorf("interceptors have got the ClientConn %p, want %p", seen, cc)
		}
	}
}

// TestClientConnIdle: making the ClientConn doesn't connect the Client.
func TestClientConnIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, built := builtResolver("idle")
		c := newTestClient(t, "idle:///x", WithResolvers(r))
		cc := c.ClientConn()
		synctest.Wait()
		if len(built) > 0 || c.GetState() != connectivity.Idle || cc.GetState() != connectivity.Idle {
			t.Errorf("got the states %v and %v, want IDLE", c.GetState(), cc.GetState())
		}
		cc.Connect()
		synctest.Wait()
		if len(built) == 0 || c.GetState() != connectivity.Connecting || cc.GetState() != connectivity.Connecting {
			t.Errorf("got the states %v and %v, want CONNECTING", c.GetState(), cc.GetState())
		}
	})
}

// builtResolver returns a resolver, and a channel that says when it has been built.
func builtResolver(scheme string) (*manual.Resolver, chan bool) {
	r, built := manual.NewBuilderWithScheme(scheme), make(chan bool, 1)
	r.BuildCallback = func(resolver.Target, resolver.ClientConn, resolver.BuildOptions) { built <- true }
	return r, built
}

// awaitState waits until a client has a state.
func awaitState(t *testing.T, cc stateful, want connectivity.State) {
	t.Helper()
	ctx := callContext(t)
	for got := cc.GetState(); got != want; got = cc.GetState() {
		if !cc.WaitForStateChange(ctx, got) {
			t.Fatalf("got the state %v, want %v", got, want)
		}
	}
}

// stateful is what ClientConns and Clients have in common.
type stateful interface {
	grpc.ClientConnInterface
	Connect()
	GetState() connectivity.State
	WaitForStateChange(context.Context, connectivity.State) bool
	Close() error
}

// TestClientConnStates: a Client's ClientConn has the states of the Client, and these are grpc-go's.
// Either is told to connect, or makes a call.
func TestClientConnStates(t *testing.T) {
	testnet.NoLeaks(t)
	for _, byCall := range []bool{false, true} {
		for _, kind := range []string{"grpc-go", "Client", "ClientConn"} {
			r, built := builtResolver("states")
			var cc, other stateful
			if kind == "grpc-go" {
				conn := dialTarget(t, "states:///x", grpc.WithResolvers(r))
				cc, other = conn, conn
			} else {
				c := newTestClient(t, "states:///x", WithResolvers(r))
				if cc, other = c, c.ClientConn(); kind == "ClientConn" {
					cc, other = other, cc
				}
			}
			await := func(want connectivity.State) {
				t.Helper()
				awaitState(t, other, want)
				if got := cc.GetState(); got != want {
					t.Fatalf("%s: got the state %v, and %v of the other", kind, got, want)
				}
			}
			wake := func() {
				if !byCall {
					cc.Connect()
					return
				}
				go func() { _ = callUnary(callContext(t), cc, nil, grpc.WaitForReady(true)) }()
			}
			await(connectivity.Idle)
			wake()
			await(connectivity.Connecting)
			testnet.Receive(t, "the resolver", built)
			r.CC().ReportError(errors.New("no such name"))
			await(connectivity.TransientFailure)
			for range 2 {
				lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
				srv := startOwn(t, lis)
				r.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: lis.Addr().String()}}})
				wake()
				await(connectivity.Ready)
				if err := callUnary(callContext(t), cc, nil); err != nil {
					t.Error(err)
				}
				srv.Stop()
				await(connectivity.Idle)
			}
			if err := cc.Close(); err != nil {
				t.Error(err)
			}
			await(connectivity.Shutdown)
			if err := other.Close(); !isClosing(err) {
				t.Errorf("%s: got %v of the second Close", kind, err)
			}
			for _, closed := range []stateful{cc, other} {
				if err := callUnary(callContext(t), closed, nil); status.Code(err) != codes.Canceled {
					t.Errorf("%s: got %v of a client that is closed, want Canceled", kind, err)
				}
			}
		}
	}
}

// TestClientConnClosed: the ClientConn of a closed Client is closed, and calls of either end with the
// Close of either.
func TestClientConnClosed(t *testing.T) {
	testnet.NoLeaks(t)
	c := newTestClient(t, "passthrough:///x")
	c.Close()
	if err := callUnary(callContext(t), c.ClientConn(), nil); status.Code(err) != codes.Canceled || c.ClientConn().GetState() != connectivity.Shutdown {
		t.Errorf("got %v in the state %v, want Canceled and SHUTDOWN", err, c.ClientConn().GetState())
	}
	lis := serveEcho(t)
	for i := range 4 {
		c := dialClient(t, lis)
		of := []stateful{c, c.ClientConn()}
		s := openChat(t, callContext(t), of[i&1])
		if err := of[i>>1].Close(); err != nil {
			t.Error(err)
		}
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Canceled {
			t.Errorf("got %v of a stream of a client that is closed, want Canceled", err)
		}
	}
}

// An eagerResolver brings an address and a service config as soon as it is built, and on demand.
type eagerResolver struct {
	addr string
	cc   atomic.Pointer[resolver.ClientConn] // nil: it has not been built
}

func (*eagerResolver) Scheme() string                        { return "eager" }
func (*eagerResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (*eagerResolver) Close()                                {}

func (r *eagerResolver) Build(_ resolver.Target, cc resolver.ClientConn, _ resolver.BuildOptions) (resolver.Resolver, error) {
	r.cc.Store(&cc)
	r.bring(resolver.Address{Addr: r.addr})
	return r, nil
}

func (r *eagerResolver) bring(addrs ...resolver.Address) {
	if cc := r.cc.Load(); cc != nil {
		config := (*cc).ParseServiceConfig(`{"methodConfig":[{"name":[{}],"timeout":"7s"}]}`)
		_ = (*cc).UpdateState(resolver.State{Addresses: addrs, ServiceConfig: config})
	}
}

// TestClientConnAtOnce: everything that a Client and its ClientConn hear of may come at once.
func TestClientConnAtOnce(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	for range 20 {
		r := &eagerResolver{addr: lis.Addr().String()}
		c := newTestClient(t, "eager:///x", WithResolvers(r), WithIdleTimeout(time.Microsecond))
		cc := c.ClientConn()
		events := []func(){
			cc.Connect, c.Connect, func() { r.bring(resolver.Address{Addr: r.addr}) }, func() { r.bring() },
			func() { _ = callUnary(callContext(t), c, nil) }, func() { _ = callUnary(callContext(t), cc, nil) },
			func() { cc.GetState(); cc.GetMethodConfig("/s/m") },
		}
		halfway := make(chan bool, len(events))
		var all sync.WaitGroup
		for _, event := range events {
			all.Go(func() {
				for i := range 50 {
					if event(); i == 25 {
						halfway <- true
					}
				}
			})
		}
		for _, closing := range []stateful{c, cc} {
			all.Go(func() {
				<-halfway
				_ = closing.Close()
			})
		}
		all.Wait()
		if c.GetState() != connectivity.Shutdown || cc.GetState() != connectivity.Shutdown {
			t.Errorf("got the states %v and %v of closed clients", c.GetState(), cc.GetState())
		}
	}
}

// TestClientConnMethodConfig: a Client's ClientConn has the client's service configs.
func TestClientConnMethodConfig(t *testing.T) {
	testnet.NoLeaks(t)
	const first = `{"loadBalancingConfig":[{"round_robin":{}}],"methodConfig":[{"name":[{"service":"s"}],"waitForReady":true,
		"retryPolicy":{"maxAttempts":9,"initialBackoff":"1s","maxBackoff":"2s","backoffMultiplier":2,"retryableStatusCodes":["ABORTED"]}}]}`
	const then = `{"methodConfig":[{"name":[{}],"timeout":"7s","maxRequestMessageBytes":8}]}`
	r, built := builtResolver("configs")
	theirs := dialTarget(t, "configs:///x", grpc.WithResolvers(r), grpc.WithDefaultServiceConfig(first), grpc.WithMaxCallAttempts(7))
	own, ownBuilt := builtResolver("configs")
	ours := newTestClient(t, "configs:///x", WithResolvers(own), WithDefaultServiceConfig(first), WithMaxCallAttempts(7)).ClientConn()
	for cc, built := range map[*grpc.ClientConn]chan bool{theirs: built, ours: ownBuilt} {
		cc.Connect()
		testnet.Receive(t, "the resolver", built)
	}
	for i, js := range []string{"", then, "{"} {
		for _, r := range []*manual.Resolver{r, own} {
			state := resolver.State{Addresses: []resolver.Address{{Addr: "127.0.0.1:1"}}}
			if js != "" {
				state.ServiceConfig = r.CC().ParseServiceConfig(js)
			}
			r.UpdateState(state)
		}
		for _, method := range []string{"/s/m", "/t/m"} {
			want := theirs.GetMethodConfig(method)
			if i == 0 && method == "/s/m" && (want.WaitForReady == nil || want.RetryPolicy == nil || want.RetryPolicy.MaxAttempts != 7) {
				t.Fatalf("got %+v of grpc-go", want)
			}
			testnet.Eventually(t, "the service config "+js, func() bool { return reflect.DeepEqual(ours.GetMethodConfig(method), want) })
		}
	}
}

// TestClientConnCallOptions: each option of a call works as with grpc-go's ClientConn, and once.
func TestClientConnCallOptions(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t, ChainUnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		md, _ := metadata.FromIncomingContext(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("got", fmt.Sprint(md["content-type"], md["grpc-encoding"], md["authorization"], md[":authority"])))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("n", "1"))
		return handler(ctx, req)
	}))
	authority := lis.Addr().String()
	codec := encoding.GetCodecV2("proto")
	tests := map[string][]grpc.CallOption{
		"none": nil, "WaitForReady": {grpc.WaitForReady(true)}, "StaticMethod": {grpc.StaticMethod()},
		"MaxCallRecvMsgSize": {grpc.MaxCallRecvMsgSize(10)}, "MaxCallSendMsgSize": {grpc.MaxCallSendMsgSize(10)},
		"UseCompressor": {grpc.UseCompressor("gzip")}, "no compressor": {grpc.UseCompressor("none")},
		"CallContentSubtype": {grpc.CallContentSubtype("PROTO")}, "no codec": {grpc.CallContentSubtype("none")},
		"ForceCodecV2": {grpc.ForceCodecV2(codec)}, "MaxRetryRPCBufferSize": {grpc.MaxRetryRPCBufferSize(1)},
		"PerRPCCredentials": {grpc.PerRPCCredentials(bearer{"x", false})}, "secure credentials": {grpc.PerRPCCredentials(bearer{"x", true})},
		"CallAuthority": {grpc.CallAuthority("other")}, "of the caller": {grpc.EmptyCallOption{}},
	}
	for name, options := range tests {
		var want string
		for _, kind := range []string{"grpc-go", "ClientConn", "ClientConn, by default"} {
			var header, trailer metadata.MD
			var from peer.Peer
			finished := make(chan error, 2)
			all := append([]grpc.CallOption{grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from), grpc.OnFinish(func(err error) { finished <- err })}, options...)
			var cc *grpc.ClientConn
			switch kind {
			case "grpc-go":
				cc = dialServer(t, lis)
			case "ClientConn":
				cc = dialClient(t, lis).ClientConn()
			default:
				cc, all = dialClient(t, lis, WithDefaultCallOptions(all...)).ClientConn(), nil
			}
			err := callUnary(callContext(t), cc, pattern(100), all...)
			cc.Close()
			close(finished)
			var ends []string
			for err := range finished {
				ends = append(ends, statusText(err))
			}
			got := fmt.Sprint(statusText(err), ends)
			if err == nil {
				got += strings.ReplaceAll(fmt.Sprint(header["got"], trailer["n"], from.Addr), authority, "server")
			}
			if kind == "grpc-go" {
				want = got
			} else if got != want || len(ends) != 1 {
				t.Errorf("%s: got of the %s %s, want %s", name, kind, got, want)
			}
		}
	}
}

// TestClientConnTargets: a Client's ClientConn understands the target as the Client does.
func TestClientConnTargets(t *testing.T) {
	testnet.NoLeaks(t)
	for _, target := range []string{"host:1", "dns:///host:1", "passthrough:///host", "unix:/path", "unknown:x", "host", "", "///x"} {
		theirs := dialTarget(t, target)
		c := newTestClient(t, target)
		cc := c.ClientConn()
		if got, want := cc.CanonicalTarget(), theirs.CanonicalTarget(); got != want || c.CanonicalTarget() != want || cc.Target() != target {
			t.Errorf("%q: got %q and %q, want %q", target, got, c.CanonicalTarget(), want)
		}
	}
}

// BenchmarkClientConn makes calls of 128 bytes by 64 callers, with grpc-go's ClientConn, a Client, and a
// Client's ClientConn.
func BenchmarkClientConn(b *testing.B) {
	for _, kind := range []string{"grpc-go", "Client", "ClientConn"} {
		b.Run(kind, func(b *testing.B) {
			lis := serveEcho(b)
			c := dialClient(b, lis)
			cc := map[string]grpc.ClientConnInterface{"grpc-go": dialServer(b, lis), "Client": c, "ClientConn": c.ClientConn()}[kind]
			ctx, message := callContext(b), pattern(128)
			b.ReportAllocs()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := callUnary(ctx, cc, message); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
