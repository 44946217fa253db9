package grpcadapter

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/internal/testnet"
)

// panicking is a codec that panics.
type panicking struct{ encoding.Codec }

func (panicking) Marshal(any) ([]byte, error) { panic("marshal") }
func (panicking) Name() string                { return "panicking" }

// TestClientPanics: a panic of the user's code reaches the caller, who may recover from it.
func TestClientPanics(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis)
	func() {
		defer func() {
			if got := recover(); got != "marshal" {
				t.Errorf("recovered %v, want the codec's panic", got)
			}
		}()
		_ = callUnary(callContext(t), c, nil, grpc.ForceCodec(panicking{}))
	}()
	if err := callUnary(callContext(t), c, nil); err != nil {
		t.Error(err)
	}
}

// TestClientOptionsApart: an interceptor may append to the options of a call; other calls don't get it.
func TestClientOptionsApart(t *testing.T) {
	var seen [][]grpc.CallOption
	c := newTestClient(t, "passthrough:///x", WithDefaultCallOptions(grpc.WaitForReady(true)), WithDefaultCallOptions(grpc.WaitForReady(true)),
		WithDefaultCallOptions(grpc.WaitForReady(true)),
		WithChainUnaryInterceptor(func(_ context.Context, method string, _, _ any, _ *grpc.ClientConn, _ grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			seen = append(seen, append(opts, grpc.CallContentSubtype(method)))
			return nil
		}))
	for _, method := range []string{"a", "b"} {
		if err := c.Invoke(t.Context(), method, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := seen[0][len(seen[0])-1].(grpc.ContentSubtypeCallOption).ContentSubtype; got != "a" {
		t.Errorf("the first call has got the option of the call %s", got)
	}
}

// TestClientsShare: clients of the same options, which hold the same credentials, resolver and handlers,
// don't hear of each other: not at once, nor when one is closed.
func TestClientsShare(t *testing.T) {
	testnet.NoLeaks(t)
	server, config := testnet.TLS(t)
	lis := serveEcho(t, Creds(credentials.NewTLS(server)))
	r := manual.NewBuilderWithScheme("shared")
	r.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: lis.Addr().String()}}})
	opts := []ClientOption{
		WithTransportCredentials(credentials.NewTLS(config)), WithPerRPCCredentials(bearer{"token", true}), WithResolvers(r),
		WithDefaultServiceConfig(`{"loadBalancingConfig":[{"round_robin":{}}]}`), WithStatsHandler(new(attemptLog)),
	}
	first, second := newTestClient(t, "shared:///x", opts...), newTestClient(t, "shared:///x", opts...)
	var calls sync.WaitGroup
	for i := range 40 {
		calls.Go(func() {
			if err := callUnary(callContext(t), []*Client{first, second}[i%2], pattern(i)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	first.Close()
	for _, c := range []*Client{second, newTestClient(t, "shared:///x", opts...)} {
		if err := callUnary(callContext(t), c, nil); err != nil {
			t.Error(err)
		}
	}
	if config.NextProtos != nil {
		t.Errorf("the config has got the protocols %q", config.NextProtos)
	}
}

// TestClientStreamNotOpened: the attempt of a stream that was not opened ends for stats handlers, too.
func TestClientStreamNotOpened(t *testing.T) {
	times := new(attemptLog)
	c := newTestClient(t, "passthrough:///"+testnet.Reserve(t), WithStatsHandler(times))
	if _, err := tryChat(callContext(t), c); status.Code(err) != codes.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	times.mu.Lock()
	defer times.mu.Unlock()
	if len(times.begins) != 1 || len(times.ends) != 1 {
		t.Errorf("%d attempts have begun, and %d have ended", len(times.begins), len(times.ends))
	}
}
