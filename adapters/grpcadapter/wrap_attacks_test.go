package grpcadapter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// These tests look for something that grpc-go's transport does for a server, and Wrap does not.

// A startFunc serves echo until the test ends.
type startFunc func(lis net.Listener, opts ...grpc.ServerOption)

// eachServe runs a test on grpc-go's transport and past it, and compares what it returns.
func eachServe(t *testing.T, test func(t *testing.T, start startFunc) string) {
	t.Helper()
	testnet.NoLeaks(t)
	want := test(t, func(lis net.Listener, opts ...grpc.ServerOption) { serveOn(t, lis, grpc.NewServer(opts...), &echo) })
	got := test(t, func(lis net.Listener, opts ...grpc.ServerOption) { serveWrapped(t, lis, opts...) })
	if got != want {
		t.Errorf("past grpc-go's transport\n%s\nwant\n%s", got, want)
	}
}

// markedListener returns connections of a type of its own, which carry something for credentials.
type markedListener struct{ net.Listener }

func (l markedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &markedConn{c, "of the listener"}, nil
}

type markedConn struct {
	net.Conn
	mark string
}

// markedCreds are credentials that know the listener's connections by their type, and refuse others.
type markedCreds struct {
	credentials.TransportCredentials
	protocol string
}

func (c markedCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: c.protocol}
}

func (c markedCreds) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	marked, ok := conn.(*markedConn)
	if !ok {
		return nil, nil, errors.New("not the listener's connection")
	}
	return conn, markedInfo{mark: marked.mark}, nil
}

type markedInfo struct {
	credentials.CommonAuthInfo
	mark string
}

func (markedInfo) AuthType() string { return "marked" }

// TestWrapCredsConn: credentials get the connection that the listener has returned.
func TestWrapCredsConn(t *testing.T) {
	for _, protocol := range []string{"marked", "tls"} {
		eachServe(t, func(t *testing.T, start startFunc) string {
			var seen string // written before the call's end
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			start(markedListener{lis}, grpc.Creds(markedCreds{insecure.NewCredentials(), protocol}),
				grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					p, _ := peer.FromContext(ctx)
					seen = fmt.Sprintf("%+v", p.AuthInfo)
					return handler(ctx, req)
				}))
			if err := callUnary(callContext(t), dialServer(t, lis), pattern(10)); err != nil {
				t.Error(err)
			}
			if !strings.Contains(seen, "of the listener") {
				t.Errorf("the handler got the AuthInfo %s", seen)
			}
			return seen
		})
	}
}

// deepContext is a context that looks values up by calling itself.
type deepContext struct{ context.Context }

func (c deepContext) Value(key any) any { return c.Context.Value(key) }

// TestWrapDeepContext: functions of grpc-go find the call below contexts of other types, however many.
func TestWrapDeepContext(t *testing.T) {
	for _, depth := range []int{0, 5, 15, 40, 300} {
		eachServe(t, func(t *testing.T, start startFunc) string {
			var seen string
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			start(lis, grpc.UnaryInterceptor(
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					for range depth {
						ctx = deepContext{ctx}
					}
					names, err := grpc.ClientSupportedCompressors(ctx)
					method, ok := grpc.Method(ctx)
					seen = fmt.Sprint(names, err, method, ok, grpc.SetSendCompressor(ctx, encoding.Identity),
						grpc.SetHeader(ctx, metadata.Pairs("k", "v")), grpc.SetTrailer(ctx, metadata.Pairs("l", "w")))
					return handler(ctx, req)
				}))
			var header, trailer metadata.MD
			err := callUnary(callContext(t), dialServer(t, lis), pattern(10), grpc.Header(&header), grpc.Trailer(&trailer))
			if err != nil || seen == "" || strings.Contains(seen, "failed") {
				t.Errorf("%d contexts: %v, %s", depth, err, seen)
			}
			return fmt.Sprint(seen, header, trailer)
		})
	}
}

// TestWrapKeptContext: what a handler keeps of its call says the same after the end, whatever other
// calls do.
func TestWrapKeptContext(t *testing.T) {
	eachServe(t, func(t *testing.T, start startFunc) string {
		var mu sync.Mutex
		var contexts []context.Context
		keep := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			contexts = append(contexts, ctx)
		}
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		start(lis, grpc.StatsHandler(new(connTag)),
			grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				keep(ctx)
				return handler(ctx, req)
			}),
			grpc.StreamInterceptor(func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				keep(ss.Context())
				return handler(srv, ss)
			}))
		cc := dialServer(t, lis)
		deadline, cancel := context.WithTimeout(callContext(t), time.Hour)
		defer cancel()
		const calls = 30
		for i := range calls {
			ctx := metadata.AppendToOutgoingContext(deadline, "number", fmt.Sprint(i))
			if err := callUnary(ctx, cc, pattern(10)); err != nil {
				t.Fatal(err)
			}
		}
		stream := openChat(t, metadata.AppendToOutgoingContext(deadline, "number", fmt.Sprint(calls)), cc)
		if err := say(stream, pattern(10)); err != nil {
			t.Fatal(err)
		}
		endChat(t, stream)
		mu.Lock()
		defer mu.Unlock()
		var seen []string
		for _, ctx := range contexts {
			<-ctx.Done() // the client may know of the end first
			p, _ := peer.FromContext(ctx)
			method, ok := grpc.Method(ctx)
			_, hasDeadline := ctx.Deadline()
			seen = append(seen, fmt.Sprint(ctx.Err(), metadata.ValueFromIncomingContext(ctx, "number"), method, ok, hasDeadline,
				p.Addr != nil && p.LocalAddr != nil, ctx.Value(statsKey("conn")), ctx.Value(statsKey("call")),
				grpc.SetHeader(ctx, metadata.Pairs("k", "v")), status.Code(grpc.SendHeader(ctx, metadata.Pairs("k", "v"))),
				grpc.SetTrailer(ctx, metadata.Pairs("k", "v")), grpc.SetSendCompressor(ctx, encoding.Identity)))
		}
		if len(seen) != calls+1 {
			t.Errorf("got %d contexts, want %d", len(seen), calls+1)
		}
		return strings.Join(seen, "\n")
	})
}

// connTag adds values to the contexts of connections and calls.
type connTag struct{ noStats }

func (*connTag) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, statsKey("conn"), "tagged")
}

func (*connTag) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, statsKey("call"), fmt.Sprint(ctx.Value(statsKey("conn")), info.FullMethodName))
}
