package grpcadapter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// dialClient returns a Client of the server on lis, and closes it when the test ends.
func dialClient(t testing.TB, lis net.Listener, opts ...ClientOption) *Client {
	t.Helper()
	target := "passthrough:///" + lis.Addr().String()
	if lis.Addr().Network() == "unix" {
		target = "unix:" + lis.Addr().String()
	}
	return newTestClient(t, target, opts...)
}

func newTestClient(t testing.TB, target string, opts ...ClientOption) *Client {
	t.Helper()
	c, err := NewClient(target, append([]ClientOption{WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatalf("NewClient(%q): %v", target, err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestClient makes calls of many sizes, one after the other and many at once, over each kind of address.
func TestClient(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range testnet.Kinds() {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			lis := testnet.Listen(t, percore.Listen, kind)
			startOwn(t, lis)
			c := dialClient(t, lis)
			exercise(t, c)
			var calls sync.WaitGroup
			for i := range 300 {
				calls.Go(func() {
					if err := callUnary(callContext(t), c, pattern(i*100)); err != nil {
						t.Error(err)
					}
				})
			}
			calls.Wait()
			openChat(t, callContext(t), c)
			stats := c.Stats()
			if stats.Ended[codes.OK] != 310 || stats.Calls != 1 || stats.HTTP2.Conns != 1 {
				t.Errorf("got the metrics %+v", stats)
			}
		})
	}
}

// TestClientRefuses: what there isn't fails loudly.
func TestClientRefuses(t *testing.T) {
	plain := WithTransportCredentials(insecure.NewCredentials())
	for _, test := range []struct {
		want string
		opts []ClientOption
	}{
		{"no transport security set", nil},
		{"pick_first and round_robin", []ClientOption{plain, WithDefaultServiceConfig(`{"loadBalancingConfig":[{"rls_experimental":{}}]}`)}},
		{"WithIdleTimeout", []ClientOption{plain, WithIdleTimeout(-1)}},
		{"transport level security", []ClientOption{plain, WithPerRPCCredentials(bearer{"x", true})}},
	} {
		if c, err := NewClient("passthrough:///x", test.opts...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v and %v, want an error with %q", c, err, test.want)
		}
	}
	lis := serveEcho(t)
	c := dialClient(t, lis)
	type unknown struct{ grpc.CallOption }
	err := callUnary(callContext(t), c, nil, unknown{})
	if status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "rpc") && !strings.Contains(err.Error(), "unknown") {
		t.Errorf("got %v for an option that nobody knows, want Unimplemented", err)
	}
	type own struct {
		grpc.EmptyCallOption
		_ int
	}
	if err := callUnary(callContext(t), c, nil, own{}); err != nil {
		t.Errorf("got %v for an option of an interceptor, which does nothing", err)
	}
}

// bearer is per-RPC credentials.
type bearer struct {
	value  string
	secure bool
}

func (k bearer) GetRequestMetadata(_ context.Context, uri ...string) (map[string]string, error) {
	if k.value == "" {
		return nil, errors.New("no token")
	}
	return map[string]string{"Authorization": k.value, "audience": strings.Join(uri, " ")}, nil
}

func (k bearer) RequireTransportSecurity() bool { return k.secure }

// TestClientAuthority compares what calls with a name of their own do in a grpc.ClientConn and in a
// Client: over TLS the server's certificate must have the name.
func TestClientAuthority(t *testing.T) {
	testnet.NoLeaks(t)
	for _, secure := range []bool{false, true} {
		server, client := credentialsOf(t, secure)
		var got atomic.Value
		lis := serveEcho(t, Creds(server), ChainUnaryInterceptor(
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				md, _ := metadata.FromIncomingContext(ctx)
				got.Store(fmt.Sprint(md[":authority"]))
				return handler(ctx, req)
			}))
		theirs := dialServer(t, lis, grpc.WithTransportCredentials(client))
		ours := dialClient(t, lis, WithTransportCredentials(client))
		for _, name := range []string{"", "localhost", "127.0.0.1", "evil.example"} {
			var results []string
			for _, cc := range []grpc.ClientConnInterface{theirs, ours} {
				got.Store("")
				err := callUnary(callContext(t), cc, nil, grpc.CallAuthority(name))
				results = append(results, fmt.Sprint(err, got.Load()))
			}
			if results[0] != results[1] {
				t.Errorf("secure %v, %q: got %s, want %s", secure, name, results[1], results[0])
			}
			if secure && name == "evil.example" && !strings.Contains(results[1], "failed to validate authority") {
				t.Errorf("got %s, want that the name is refused", results[1])
			}
		}
	}
}

// failing is an interceptor that fails the first attempts of each call.
func failing(attempts int, code codes.Code, header bool) grpc.StreamServerInterceptor {
	var seen sync.Map
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		md, _ := metadata.FromIncomingContext(ss.Context())
		n, _ := seen.LoadOrStore(strings.Join(md["id"], ""), new(atomic.Int64))
		if n.(*atomic.Int64).Add(1) <= int64(attempts) {
			if header {
				_ = ss.SendHeader(nil)
			}
			return status.Errorf(code, "attempt %v, of which the client says %v", n.(*atomic.Int64).Load(), md["grpc-previous-rpc-attempts"])
		}
		return handler(srv, ss)
	}
}

// TestClientRetries compares retries in a grpc.ClientConn and in a Client.
func TestClientRetries(t *testing.T) {
	testnet.NoLeaks(t)
	const policy = `{"methodConfig":[{"name":[{"service":"percore.test.Echo"}],"retryPolicy":{"maxAttempts":4,
		"initialBackoff":"0.001s","maxBackoff":"0.01s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}],
		"retryThrottling":{"maxTokens":1000,"tokenRatio":1}}`
	// grpc-go doesn't know hedging: there is one attempt, also beside a retryPolicy of another method.
	const hedging = `{"methodConfig":[{"name":[{"service":"percore.test.Echo","method":"Chat"}],"hedgingPolicy":{"maxAttempts":3,
		"hedgingDelay":"0.001s","nonFatalStatusCodes":["UNAVAILABLE"]}},{"name":[{}],"retryPolicy":{"maxAttempts":3,
		"initialBackoff":"0.001s","maxBackoff":"0.01s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	for _, test := range []struct {
		attempts int
		code     codes.Code
		header   bool
		disabled bool
		policy   string // instead of the usual one
	}{
		{attempts: 0}, {attempts: 1, code: codes.Unavailable}, {attempts: 3, code: codes.Unavailable},
		{attempts: 4, code: codes.Unavailable}, {attempts: 1, code: codes.Internal},
		{attempts: 1, code: codes.Unavailable, header: true}, {attempts: 1, code: codes.Unavailable, disabled: true},
		{attempts: 1, code: codes.Unavailable, policy: hedging},
	} {
		policy := cmp.Or(test.policy, policy)
		run := func(make func(lis net.Listener) grpc.ClientConnInterface) string {
			lis := serveEcho(t, ChainStreamInterceptor(failing(test.attempts, test.code, test.header)))
			cc := make(lis)
			ctx := metadata.AppendToOutgoingContext(callContext(t), "id", "x")
			s, err := cc.NewStream(ctx, &echo.Streams[0], "/percore.test.Echo/Chat")
			if err != nil {
				return fmt.Sprint("NewStream: ", err)
			}
			for i := range 3 { // before an answer has come
				if err := s.SendMsg(wrapperspb.Bytes(pattern(10 + i))); err != nil {
					break
				}
			}
			var got []string
			for range 3 {
				out := new(wrapperspb.BytesValue)
				err := s.RecvMsg(out)
				text, _, _ := strings.Cut(fmt.Sprint(err), " attempts:") // grpc-go says EOF behind it, if SendMsg was first
				got = append(got, fmt.Sprint(len(out.Value), " ", text))
				if err != nil {
					break
				}
			}
			return strings.Join(got, "; ")
		}
		want := run(func(lis net.Listener) grpc.ClientConnInterface {
			opts := []grpc.DialOption{grpc.WithDefaultServiceConfig(policy)}
			if test.disabled {
				opts = append(opts, grpc.WithDisableRetry())
			}
			return dialServer(t, lis, opts...)
		})
		got := run(func(lis net.Listener) grpc.ClientConnInterface {
			opts := []ClientOption{WithDefaultServiceConfig(policy)}
			if test.disabled {
				opts = append(opts, WithDisableRetry())
			}
			return dialClient(t, lis, opts...)
		})
		if got != want {
			t.Errorf("%+v: got %s, want %s", test, got, want)
		}
	}
}

// attemptLog notes the attempts of calls.
type attemptLog struct {
	noStats
	mu     sync.Mutex
	all    []string    // guarded by mu, as the others
	errs   []string    // of ends
	begins []time.Time // of attempts
	ends   []time.Time
}

func (a *attemptLog) HandleRPC(_ context.Context, s stats.RPCStats) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch s := s.(type) {
	case *stats.Begin:
		a.all = append(a.all, fmt.Sprintf("begin, transparent %v", s.IsTransparentRetryAttempt))
		a.begins = append(a.begins, s.BeginTime)
	case *stats.DelayedPickComplete:
		a.all = append(a.all, "delayed")
	case *stats.End:
		a.all = append(a.all, fmt.Sprintf("end %v", status.Code(s.Error)))
		a.errs = append(a.errs, fmt.Sprint(s.Error))
		a.ends = append(a.ends, s.EndTime)
	}
}

// TestClientRetryEnds: an attempt that is tried again ends before the time that the server wants the
// client to wait, not after it.
func TestClientRetryEnds(t *testing.T) {
	const wait = 30 * time.Millisecond
	lis := serveEcho(t, ChainStreamInterceptor(func(_ any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		ss.SetTrailer(metadata.Pairs("grpc-retry-pushback-ms", fmt.Sprint(wait.Milliseconds())))
		return status.Error(codes.Unavailable, "again")
	}))
	times := new(attemptLog)
	cc := dialClient(t, lis, WithStatsHandler(times), WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{
		"maxAttempts":2,"initialBackoff":"1s","maxBackoff":"1s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	s := openChat(t, callContext(t), cc)
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	if len(times.begins) != 2 || len(times.ends) != 2 || times.begins[1].Sub(times.ends[0]) < wait {
		t.Errorf("attempts began at %v and ended at %v, want %v between them", times.begins, times.ends, wait)
	}
}

// TestClientRetryFails: for stats handlers the last attempt of a call ends with its own status, which
// doesn't speak of the others, as with grpc-go.
func TestClientRetryFails(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	const config = `{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,"initialBackoff":"0.001s",
		"maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNIMPLEMENTED"]}}]}`
	var logs [2]attemptLog
	for i, cc := range []grpc.ClientConnInterface{
		dialServer(t, lis, grpc.WithStatsHandler(&logs[0]), grpc.WithDefaultServiceConfig(config)),
		dialClient(t, lis, WithStatsHandler(&logs[1]), WithDefaultServiceConfig(config)),
	} {
		for range 10 {
			logs[i].errs = nil
			err := cc.Invoke(callContext(t), "/percore.test.None/None", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue))
			if status.Code(err) != codes.Unimplemented {
				t.Errorf("client %d: got %v, want Unimplemented", i, err)
			}
			if i == 1 || logs[i].errs[0] != "<nil>" { // as grpc-go says if it finds the end when it sends
				break
			}
		}
	}
	if got, want := logs[1].errs, logs[0].errs; !slices.Equal(got, want) || len(want) != 2 {
		t.Errorf("the attempts ended with %q, want %q as with grpc-go", got, want)
	}
}

// TestClientRetryNotOpened: a call whose next attempt found no room for its stream until its context
// ended has no stream, and its methods say how it has ended.
func TestClientRetryNotOpened(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t, MaxConcurrentStreams(1), ChainStreamInterceptor(
		func(_ any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			if md, _ := metadata.FromIncomingContext(ss.Context()); len(md["fails"]) > 0 {
				return status.Error(codes.Unavailable, "again")
			}
			<-ss.Context().Done()
			return nil
		}))
	cc := dialClient(t, lis, WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,
		"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(callContext(t), "fails", "x"))
	defer cancel()
	s := openChat(t, ctx, cc)
	other, stop := context.WithCancel(callContext(t))
	defer stop()
	openChat(t, other, cc) // takes the only place
	received := make(chan error, 1)
	go func() { received <- s.RecvMsg(new(wrapperspb.BytesValue)) }()
	testnet.Eventually(t, "the first attempt has failed", func() bool { return cc.Stats().Ended[codes.Unavailable] == 1 })
	cancel()
	if err := testnet.Receive(t, "RecvMsg's return", received); status.Code(err) != codes.Canceled {
		t.Errorf("RecvMsg returned %v, want Canceled", err)
	}
	// If the context has ended a moment earlier, the call still has its first attempt.
	if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
		t.Errorf("another RecvMsg returned %v, want Canceled or Unavailable", err)
	}
	if err := s.SendMsg(wrapperspb.Bytes(nil)); err == nil {
		t.Error("SendMsg has succeeded")
	}
	if err := s.CloseSend(); err != nil {
		t.Errorf("CloseSend returned %v", err)
	}
	if md, err := s.Header(); len(md) > 0 || err != nil {
		t.Errorf("Header returned %v and %v", md, err)
	}
	_ = s.Trailer()
}

// TestClientRolling replaces three servers, one after the other, under calls that are not tried again:
// none may fail that a server could have served.
func TestClientRolling(t *testing.T) {
	testnet.NoLeaks(t)
	r := manual.NewBuilderWithScheme("rolling")
	type one struct {
		srv *Server
		lis net.Listener
	}
	start := func() one {
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		started := one{startOwn(t, lis), lis}
		if err := callUnary(callContext(t), dialClient(t, lis), pattern(100)); err != nil { // Serve has begun
			t.Error(err)
		}
		return started
	}
	servers := []one{start(), start(), start()}
	addresses := func() resolver.State {
		var s resolver.State
		for _, one := range servers {
			s.Endpoints = append(s.Endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: one.lis.Addr().String()}}})
		}
		return s
	}
	r.InitialState(addresses())
	c := newTestClient(t, "rolling:///x", WithResolvers(r), WithDisableRetry(),
		WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`))
	var stop atomic.Bool
	var made atomic.Int64
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for !stop.Load() {
				if err := callUnary(callContext(t), c, pattern(100), grpc.WaitForReady(true)); err != nil {
					t.Error(err)
					return
				}
				made.Add(1)
			}
		})
	}
	for i := range 3 {
		before := made.Load()
		testnet.Eventually(t, "calls are made", func() bool { return made.Load() > before+200 || t.Failed() })
		old := servers[i]
		servers[i] = start()
		r.UpdateState(addresses())
		old.srv.GracefulStop()
	}
	stop.Store(true)
	callers.Wait()
}

// TestClientCancel ends calls with their contexts, with the client, and at their deadlines.
func TestClientCancel(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	began := make(chan context.Context, 1)
	srv := startOwn(t, lis, ChainStreamInterceptor(func(_ any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
		began <- ss.Context()
		<-ss.Context().Done()
		return nil
	}))
	for _, test := range []struct {
		name string
		want codes.Code
		end  func(c *Client, cancel func())
	}{
		{"cancel", codes.Canceled, func(_ *Client, cancel func()) { cancel() }},
		{"Close", codes.Canceled, func(c *Client, _ func()) { c.Close() }},
		{"deadline", codes.DeadlineExceeded, func(*Client, func()) {}},
		{"the server's end", codes.Unavailable, func(*Client, func()) { srv.Stop() }},
	} {
		c := dialClient(t, lis)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if test.want == codes.DeadlineExceeded {
			connect(ctx, c)
			ctx, cancel = context.WithTimeout(ctx, time.Second) // the handler must have begun by then
			defer cancel()
		}
		finished := make(chan error, 1)
		s := openChat(t, ctx, c, grpc.OnFinish(func(err error) { finished <- err }))
		at := testnet.Receive(t, "the handler", began)
		go test.end(c, cancel)
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != test.want {
			t.Errorf("%s: got %v, want the code %v", test.name, err, test.want)
		}
		testnet.Receive(t, "OnFinish", finished)
		testnet.Receive(t, "the end of the handler's context", at.Done())
		if err := s.Context().Err(); err == nil {
			t.Errorf("%s: the context of the stream has not ended", test.name)
		}
	}
}

// TestClientCancelled: what is received after the context has ended is its error, even if there is an
// answer and the call was not ended yet, which another goroutine does.
func TestClientCancelled(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis)
	for range 200 {
		ctx, cancel := context.WithCancel(callContext(t))
		s := openChat(t, ctx, c)
		if err := s.SendMsg(wrapperspb.Bytes([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Header(); err != nil { // with the answer behind it
			t.Fatal(err)
		}
		cancel()
		if err := s.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Canceled {
			t.Fatalf("got %v, want Canceled", err)
		}
	}
}

// TestClientFinishes: each call, however it fails, is reported once, and counts no longer.
func TestClientFinishes(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis, WithIdleTimeout(50*time.Millisecond))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	gone := newTestClient(t, "passthrough:///"+testnet.Reserve(t))
	for name, call := range map[string]func(opt grpc.CallOption) error{
		"success":   func(o grpc.CallOption) error { return callUnary(callContext(t), c, nil, o) },
		"cancelled": func(o grpc.CallOption) error { return callUnary(cancelled, c, nil, o) },
		"no codec": func(o grpc.CallOption) error {
			return callUnary(callContext(t), c, nil, o, grpc.CallContentSubtype("none"))
		},
		"no method": func(o grpc.CallOption) error {
			return c.Invoke(callContext(t), "/none", wrapperspb.Bytes(nil), new(wrapperspb.BytesValue), o)
		},
		"no message": func(o grpc.CallOption) error {
			return c.Invoke(callContext(t), "/percore.test.Echo/Unary", "no message", new(wrapperspb.BytesValue), o)
		},
		"too long": func(o grpc.CallOption) error {
			return callUnary(callContext(t), c, pattern(10), o, grpc.MaxCallSendMsgSize(5))
		},
		"bad metadata": func(o grpc.CallOption) error {
			return callUnary(metadata.AppendToOutgoingContext(callContext(t), "a", "\x01"), c, nil, o)
		},
		"no server": func(o grpc.CallOption) error { return callUnary(callContext(t), gone, nil, o) },
	} {
		var finished []error
		err := call(grpc.OnFinish(func(err error) { finished = append(finished, err) }))
		if len(finished) != 1 || finished[0] != err {
			t.Errorf("%s: OnFinish was told %v, want %v once", name, finished, err)
		}
	}
	testnet.Eventually(t, "the client is idle again", func() bool { return c.GetState() == connectivity.Idle })
}

// TestClientUnread: calls whose messages are not received hold up no other of their connection, as with
// grpc-go.
func TestClientUnread(t *testing.T) {
	const (
		unread, message          = 300, 80 << 10 // more than fits a stream's window
		streamWindow, connWindow = 64 << 10, 1 << 20
	)
	for name, dial := range map[string]func(t *testing.T, lis net.Listener) grpc.ClientConnInterface{
		"percore": func(t *testing.T, lis net.Listener) grpc.ClientConnInterface {
			return dialClient(t, lis, WithInitialWindowSize(streamWindow), WithInitialConnWindowSize(connWindow))
		},
		"grpc-go": func(t *testing.T, lis net.Listener) grpc.ClientConnInterface {
			return dialServer(t, lis, grpc.WithInitialWindowSize(streamWindow), grpc.WithInitialConnWindowSize(connWindow))
		},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := serveEcho(t)
			c := dial(t, lis)
			for range unread {
				ctx, cancel := context.WithCancel(callContext(t))
				defer cancel()
				s := openChat(t, ctx, c)
				if err := s.SendMsg(wrapperspb.Bytes(make([]byte, message))); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Header(); err != nil { // the answer is on its way
					t.Fatal(err)
				}
			}
			for range 20 {
				if err := callUnary(callContext(t), c, pattern(50_000)); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// TestClientIdle: connections that wait hold no goroutines, at either end.
func TestClientIdle(t *testing.T) {
	testnet.NoLeaks(t)
	if connsAreNets {
		t.Skip("a goroutine reads from each connection: run it on Linux, without the build tag percore_net")
	}
	lis := serveEcho(t)
	if err := callUnary(callContext(t), dialClient(t, lis), nil); err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	for range 50 {
		if err := callUnary(callContext(t), dialClient(t, lis), nil); err != nil {
			t.Fatal(err)
		}
	}
	testnet.Eventually(t, "few goroutines are left", func() bool { return runtime.NumGoroutine() < before+25 })
}

// isClosing reports whether err is what grpc-go returns behind Close.
func isClosing(err error) bool {
	//lint:ignore SA1019 it is what programs compare with
	return err == grpc.ErrClientConnClosing
}
