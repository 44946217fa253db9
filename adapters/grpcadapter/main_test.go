package grpcadapter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

func TestMain(m *testing.M) {
	testnet.Main(m, testnet.WithCheck(pool.CheckLeaks), testnet.WithChild("panic", panicInChild), testnet.WithChild("scheme", schemeInChild))
}

// echo is a handwritten service with bytes for messages, so it needs no generated code. Flood
// answers the first message with an empty one. After the client's last message, it sends the first
// one over and over until that fails.
var echo = grpc.ServiceDesc{
	ServiceName: "percore.test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{unaryMethod("/percore.test.Echo/Unary", func(_ context.Context, in *wrapperspb.BytesValue) (any, error) {
		return in, nil
	})},
	Streams: []grpc.StreamDesc{
		{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: chatHandler},
		{StreamName: "Flood", ServerStreams: true, ClientStreams: true, Handler: floodHandler},
	},
}

// unaryMethod describes a unary method as generated code does.
func unaryMethod(path string, do func(ctx context.Context, in *wrapperspb.BytesValue) (any, error)) grpc.MethodDesc {
	handle := func(ctx context.Context, req any) (any, error) { return do(ctx, req.(*wrapperspb.BytesValue)) }
	return grpc.MethodDesc{
		MethodName: path[strings.LastIndexByte(path, '/')+1:],
		Handler: func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return handle(ctx, in)
			}
			return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: path}, handle)
		},
	}
}

func chatHandler(_ any, stream grpc.ServerStream) error {
	for {
		in := new(wrapperspb.BytesValue)
		if err := stream.RecvMsg(in); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

func floodHandler(_ any, stream grpc.ServerStream) error {
	in := new(wrapperspb.BytesValue)
	err := stream.RecvMsg(in)
	if err == nil {
		err = stream.SendMsg(new(wrapperspb.BytesValue))
	}
	if err == nil {
		err = stream.RecvMsg(new(wrapperspb.BytesValue))
	}
	if err != io.EOF {
		return err
	}
	for {
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

// goServe calls serve on a goroutine.
func goServe(serve func() error) <-chan error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	return served
}

// serveUntil calls serve, and checks that it returns nil when the test ends.
func serveUntil(t testing.TB, stop func(), serve func() error) {
	served := goServe(serve)
	t.Cleanup(func() {
		stop()
		if err := testnet.Receive(t, "Serve returning", served); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	})
}

// dialServer returns a client of the server on lis and closes it when the test ends. Options in
// opts take precedence.
func dialServer(t testing.TB, lis net.Listener, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	target := "passthrough:///" + lis.Addr().String()
	if lis.Addr().Network() == "unix" {
		target = "unix:" + lis.Addr().String()
	}
	return dialTarget(t, target, opts...)
}

// dialTarget is dialServer for a target.
func dialTarget(t testing.TB, target string, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient(target, append([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}, opts...)...)
	if err != nil {
		t.Fatalf("NewClient(%q): %v", target, err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// credentialsOf returns the credentials of a server and of its clients: TLS, or none.
func credentialsOf(t testing.TB, secure bool) (server, client credentials.TransportCredentials) {
	if !secure {
		return insecure.NewCredentials(), insecure.NewCredentials()
	}
	serverConfig, clientConfig := testnet.TLS(t)
	return credentials.NewTLS(serverConfig), credentials.NewTLS(clientConfig)
}

// callContext limits calls that would otherwise wait forever for a dead server.
func callContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	t.Cleanup(cancel)
	return ctx
}

// callUnary sends a message and checks the answer.
func callUnary(ctx context.Context, cc grpc.ClientConnInterface, message []byte, opts ...grpc.CallOption) error {
	out := new(wrapperspb.BytesValue)
	if err := cc.Invoke(ctx, "/percore.test.Echo/Unary", wrapperspb.Bytes(message), out, opts...); err != nil {
		return err
	}
	if !bytes.Equal(out.Value, message) {
		return fmt.Errorf("got %d bytes, want the %d that were sent", len(out.Value), len(message))
	}
	return nil
}

func tryChat(ctx context.Context, cc grpc.ClientConnInterface, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return cc.NewStream(ctx, &echo.Streams[0], "/percore.test.Echo/Chat", opts...)
}

// openChat opens a chat. Its header may wait for the first message.
func openChat(t testing.TB, ctx context.Context, cc grpc.ClientConnInterface, opts ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	stream, err := tryChat(ctx, cc, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// startChat opens a chat, and waits for an answer: the handler runs then.
func startChat(t testing.TB, cc grpc.ClientConnInterface) grpc.ClientStream {
	t.Helper()
	stream := openChat(t, callContext(t), cc)
	if err := say(stream, pattern(10)); err != nil {
		t.Fatal(err)
	}
	return stream
}

// endChat ends a chat, all of whose answers were received.
func endChat(t testing.TB, stream grpc.ClientStream) {
	t.Helper()
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
		t.Errorf("the end of a stream: got %v, want EOF", err)
	}
}

// say sends a message on a chat and checks the answer.
func say(stream grpc.ClientStream, message []byte) error {
	if err := stream.SendMsg(wrapperspb.Bytes(message)); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	out := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(out); err != nil {
		return fmt.Errorf("receiving: %w", err)
	}
	if !bytes.Equal(out.Value, message) {
		return fmt.Errorf("got %d bytes, want the %d that were sent", len(out.Value), len(message))
	}
	return nil
}

// exercise makes unary calls of all sizes, and a chat with messages of all sizes.
func exercise(t *testing.T, cc grpc.ClientConnInterface) (calls int) {
	t.Helper()
	sizes := []int{0, 1, 1000, 5000, 16 << 10, 70 << 10, 300 << 10, 1 << 20, 3 << 20}
	ctx := callContext(t)
	for _, n := range sizes {
		if err := callUnary(ctx, cc, pattern(n)); err != nil {
			t.Fatalf("a call with %d bytes: %v", n, err)
		}
	}
	stream := openChat(t, ctx, cc)
	for _, n := range sizes {
		if err := say(stream, pattern(n)); err != nil {
			t.Fatalf("a message of %d bytes: %v", n, err)
		}
	}
	endChat(t, stream)
	return len(sizes) + 1
}

// listenOnLoops listens with its own group of n loops, however many processors there are.
func listenOnLoops(t testing.TB, n int, kind testnet.Kind) net.Listener {
	t.Helper()
	return listenWith(t, n, percore.ListenConfig{}, kind)
}

// listenWith is listenOnLoops with a configuration.
func listenWith(t testing.TB, n int, lc percore.ListenConfig, kind testnet.Kind) net.Listener {
	t.Helper()
	group, err := loop.NewGroup(loop.Config{Loops: n})
	if err != nil {
		t.Fatalf("a group of %d loops: %v", n, err)
	}
	t.Cleanup(group.Close)
	lc.Group = group
	return testnet.Listen(t, func(network, address string) (net.Listener, error) {
		return lc.Listen(context.Background(), network, address)
	}, kind)
}

// pattern returns n bytes that don't repeat at any boundary of a buffer.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return b
}

// noStats is a stats handler that does nothing, to be embedded.
type noStats struct{}

func (noStats) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (noStats) HandleConn(context.Context, stats.ConnStats)                       {}
func (noStats) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (noStats) HandleRPC(context.Context, stats.RPCStats)                         {}

// noted are lines of a log.
type noted struct {
	mu    sync.Mutex
	lines []string
}

func (n *noted) add(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, line)
}

// copied returns the lines so far.
func (n *noted) copied() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lines)
}

// take returns the lines since the last time.
func (n *noted) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	return lines
}

// handshaking are a server's credentials, which do the handshake in another way.
type handshaking struct {
	credentials.TransportCredentials
	do func(raw net.Conn) (net.Conn, credentials.AuthInfo, error)
}

func (c handshaking) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c.do(raw)
}

func (c handshaking) Clone() credentials.TransportCredentials { return c }
