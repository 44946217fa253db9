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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// These tests look for something that grpc-go's transport does for a server, and Wrap does not.

// attacked has a method that returns what it gets, and obeys interceptors as generated code does.
var attacked = grpc.ServiceDesc{ServiceName: "percore.test.Attacked", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
	MethodName: "Unary",
	Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.BytesValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		handler := func(_ context.Context, req any) (any, error) { return req, nil }
		if interceptor == nil {
			return handler(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: attackedPath}, handler)
	},
}}}

const attackedPath = "/percore.test.Attacked/Unary"

func callAttacked(ctx context.Context, cc *grpc.ClientConn, message []byte, opts ...grpc.CallOption) error {
	return cc.Invoke(ctx, attackedPath, wrapperspb.Bytes(message), new(wrapperspb.BytesValue), opts...)
}

// serveAttacked returns a function that serves a server which has the service attacked besides.
func serveAttacked(serve serveFunc) serveFunc {
	return func(srv *grpc.Server, lis net.Listener) error {
		srv.RegisterService(&attacked, nil)
		return serve(srv, lis)
	}
}

// eachServe runs a test on grpc-go's transport and past it, and compares what it returns.
func eachServe(t *testing.T, test func(t *testing.T, serve serveFunc) string) {
	t.Helper()
	testnet.NoLeaks(t)
	want := test(t, serveAttacked(plainServe))
	if got := test(t, serveAttacked(servePast)); got != want {
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
		eachServe(t, func(t *testing.T, serve serveFunc) string {
			var seen string // written before the call's end
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			startServer(t, serve, markedListener{lis}, grpc.Creds(markedCreds{insecure.NewCredentials(), protocol}),
				grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					p, _ := peer.FromContext(ctx)
					seen = fmt.Sprintf("%+v", p.AuthInfo)
					return handler(ctx, req)
				}))
			if err := callAttacked(callContext(t), dialServer(t, lis), pattern(10)); err != nil {
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
		eachServe(t, func(t *testing.T, serve serveFunc) string {
			var seen string
			lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
			startServer(t, serve, lis, grpc.UnaryInterceptor(
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
			err := callAttacked(callContext(t), dialServer(t, lis), pattern(10), grpc.Header(&header), grpc.Trailer(&trailer))
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
	eachServe(t, func(t *testing.T, serve serveFunc) string {
		var mu sync.Mutex
		var contexts []context.Context
		keep := func(ctx context.Context) {
			mu.Lock()
			defer mu.Unlock()
			contexts = append(contexts, ctx)
		}
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		startServer(t, serve, lis, grpc.StatsHandler(new(connTag)),
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
			if err := callAttacked(ctx, cc, pattern(10)); err != nil {
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
type connTag struct{ connLog }

func (*connTag) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, statsKey("conn"), "tagged")
}

func (*connTag) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, statsKey("call"), fmt.Sprint(ctx.Value(statsKey("conn")), info.FullMethodName))
}

// TestWrapTwoServers: servers of one process, which share the proof, keep their options apart.
func TestWrapTwoServers(t *testing.T) {
	testnet.NoLeaks(t)
	const servers = 4
	deny := func(i int) grpc.UnaryServerInterceptor {
		return func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, status.Errorf(codes.PermissionDenied, "by %d", i)
		}
	}
	var clients []*grpc.ClientConn
	for i := range servers {
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		var opts []grpc.ServerOption
		if i%2 == 1 {
			opts = append(opts, grpc.UnaryInterceptor(deny(i)))
		} else {
			opts = append(opts, grpc.MaxRecvMsgSize(100*(i+1)))
		}
		startServer(t, serveAttacked(servePast), lis, opts...)
		clients = append(clients, dialServer(t, lis))
	}
	var wg sync.WaitGroup
	for i, cc := range clients {
		for range 20 {
			wg.Go(func() {
				ctx := callContext(t)
				if i%2 == 1 {
					if err := callAttacked(ctx, cc, nil); status.Convert(err).Message() != fmt.Sprintf("by %d", i) {
						t.Errorf("server %d: got %v, want its interceptor's error", i, err)
					}
					return
				}
				if err := callAttacked(ctx, cc, pattern(50*(i+1))); err != nil {
					t.Errorf("server %d: %v", i, err)
				}
				if err := callAttacked(ctx, cc, pattern(100*(i+1))); status.Code(err) != codes.ResourceExhausted {
					t.Errorf("server %d: got %v, want its limit's error", i, err)
				}
			})
		}
	}
	wg.Wait()
}
