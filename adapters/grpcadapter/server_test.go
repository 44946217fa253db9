package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// serverWays are the kinds of connections that a Server has.
var serverWays = []struct {
	name   string
	tls    bool
	listen testnet.ListenFunc
}{
	{"plain", false, percore.Listen},
	{"tls", true, percore.Listen},
	{"net", false, net.Listen},
	{"tls on net", true, net.Listen},
}

// startOwn serves echo with a Server on lis until the test ends, and checks that Serve returns nil.
func startOwn(t testing.TB, lis net.Listener, opts ...Option) *Server {
	t.Helper()
	srv := NewServer(opts...)
	srv.RegisterService(&echo, nil)
	serveOn(t, lis, srv)
	return srv
}

// serveEcho serves echo with a Server until the test ends, and returns its listener.
func serveEcho(t testing.TB, opts ...Option) net.Listener {
	t.Helper()
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis, opts...)
	return lis
}

// TestServer makes calls of each kind and size on each kind of connection.
func TestServer(t *testing.T) {
	for _, way := range serverWays {
		t.Run(way.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := testnet.Listen(t, way.listen, testnet.TCP4)
			var server []Option
			var client []grpc.DialOption
			if way.tls {
				serverTLS, clientTLS := testnet.TLS(t)
				server = append(server, Creds(credentials.NewTLS(serverTLS)))
				client = append(client, grpc.WithTransportCredentials(credentials.NewTLS(clientTLS)))
			}
			srv := startOwn(t, lis, server...)
			cc := dialServer(t, lis, client...)
			exercise(t, cc)
			testnet.Within(t, "GracefulStop", srv.GracefulStop)
		})
	}
}

// aliasing is a message of the old kind, with methods of its own that decode it: it keeps the bytes.
type aliasing struct{ bytes []byte }

func (m *aliasing) Reset()                   { *m = aliasing{} }
func (m *aliasing) String() string           { return string(m.bytes) }
func (m *aliasing) ProtoMessage()            {}
func (m *aliasing) Marshal() ([]byte, error) { return m.bytes, nil }

func (m *aliasing) Unmarshal(b []byte) error {
	m.bytes = b
	return nil
}

// TestServerKeepsMessages: a handler may keep messages, though short ones are decoded from memory that
// is used again, and one call's memory is the next one's. So may a message that is decoded by a method
// of its own keep the bytes, as with grpc-go.
func TestServerKeepsMessages(t *testing.T) {
	testnet.NoLeaks(t)
	const messages = 20
	for _, kind := range []struct {
		make func(text string) any
		text func(m any) string
	}{
		{func(text string) any { return wrapperspb.Bytes([]byte(text)) }, func(m any) string { return string(m.(*wrapperspb.BytesValue).Value) }},
		{func(text string) any { return &aliasing{[]byte(text)} }, func(m any) string { return m.(*aliasing).String() }},
	} {
		keep := func(_ any, stream grpc.ServerStream) error {
			kept := make([]any, messages)
			for i := range kept {
				kept[i] = kind.make("")
				if err := stream.RecvMsg(kept[i]); err != nil {
					return err
				}
			}
			for _, m := range kept {
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
			return nil
		}
		text := func(call, i int) string { return strings.Repeat(fmt.Sprintf("call %d, message %d. ", call, i), 1+i) }
		for _, lis := range serveKinds(t, []grpc.ServerOption{grpc.UnknownServiceHandler(keep)}, []Option{UnknownServiceHandler(keep)}) {
			cc := dialServer(t, lis)
			for call := range 3 {
				stream, err := cc.NewStream(callContext(t), &echo.Streams[0], "/keep/Keep")
				if err != nil {
					t.Fatal(err)
				}
				for i := range messages {
					if err := stream.SendMsg(kind.make(text(call, i))); err != nil {
						t.Fatal(err)
					}
				}
				for i := range messages {
					m := kind.make("")
					if err := stream.RecvMsg(m); err != nil || kind.text(m) != text(call, i) {
						t.Fatalf("%s, message %d: got %q, %v, want %q", lis.name, i, kind.text(m), err, text(call, i))
					}
				}
				if err := stream.RecvMsg(kind.make("")); err != io.EOF {
					t.Errorf("%s, behind the last message: got %v, want EOF", lis.name, err)
				}
			}
		}
	}
}

// TestServerStops: Stop ends the calls, and waits for their handlers if that is wanted. These, and the
// clients, learn of it.
func TestServerStops(t *testing.T) {
	testnet.NoLeaks(t)
	began, ended := make(chan bool, 1), make(chan error, 3)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := startOwn(t, lis, WaitForHandlers(true), UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		began <- true
		<-stream.Context().Done()
		ended <- stream.Context().Err()
		ended <- stream.RecvMsg(new(wrapperspb.BytesValue))
		ended <- stream.SendMsg(new(wrapperspb.BytesValue))
		return nil
	}))
	stream, err := dialServer(t, lis).NewStream(callContext(t), &echo.Streams[0], "/wait/Wait")
	if err != nil {
		t.Fatal(err)
	}
	testnet.Receive(t, "the handler", began)
	srv.Stop()
	if len(ended) != cap(ended) {
		t.Fatal("Stop has not waited for the handler")
	}
	if wait, receive, send := <-ended, status.Code(<-ended), status.Code(<-ended); wait != context.Canceled || receive != codes.Canceled || send != codes.Unavailable {
		t.Errorf("the handler got %v, %v of RecvMsg and %v of SendMsg", wait, receive, send)
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); status.Code(err) != codes.Unavailable {
		t.Errorf("the client got %v", err)
	}
}

// TestServerInvalidTrailer: a call whose trailer has metadata that can't be sent fails. Without the
// trailer it would look as if it had succeeded.
func TestServerInvalidTrailer(t *testing.T) {
	testnet.NoLeaks(t)
	answer := func(_ any, stream grpc.ServerStream) error {
		name, _ := grpc.MethodFromServerStream(stream)
		stream.SetTrailer(metadata.MD{strings.TrimPrefix(name, "/a/"): {"v"}})
		return stream.SendMsg(new(wrapperspb.BytesValue))
	}
	for _, lis := range serveKinds(t, []grpc.ServerOption{grpc.UnknownServiceHandler(answer)}, []Option{UnknownServiceHandler(answer)}) {
		cc := dialServer(t, lis)
		for name, want := range map[string]codes.Code{"fine": codes.OK, "": codes.Internal, "/": codes.Internal, "\x19": codes.Internal} {
			err := cc.Invoke(callContext(t), "/a/"+name, new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
			if status.Code(err) != want {
				t.Errorf("a trailer named %q: got %v, want %v", name, err, want)
			}
		}
	}
}

// TestServerTrailerBehindMethod: a goroutine of a method sets trailers while the method returns a status
// with details, which takes the place of such a trailer.
func TestServerTrailerBehindMethod(t *testing.T) {
	testnet.NoLeaks(t)
	detailed, err := status.New(codes.NotFound, "").WithDetails(new(wrapperspb.BytesValue))
	if err != nil {
		t.Fatal(err)
	}
	var setters sync.WaitGroup
	lis := serveEcho(t, UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		begun := make(chan bool)
		setters.Go(func() {
			close(begun)
			for range 100 {
				stream.SetTrailer(metadata.Pairs("k", "v"))
			}
		})
		<-begun
		return detailed.Err()
	}))
	cc := dialServer(t, lis)
	for range 50 {
		err := cc.Invoke(callContext(t), "/a/B", new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
		if status.Code(err) != codes.NotFound {
			t.Fatal(err)
		}
	}
	setters.Wait()
}

// TestServerPeer: the calls of a connection have one peer, also those that ask for it first at the same
// time, and its addresses are the connection's.
func TestServerPeer(t *testing.T) {
	for _, way := range serverWays {
		if way.tls {
			continue // the peer is made with the handshake
		}
		t.Run(way.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			lis := testnet.Listen(t, way.listen, testnet.TCP4)
			const n = 8
			peers, all := make(chan *peer.Peer, n), make(chan bool)
			var waiting atomic.Int32
			startOwn(t, lis, ChainStreamInterceptor(func(impl any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
				waiting.Add(1)
				select {
				case <-all:
				case <-ss.Context().Done():
				}
				p, _ := peer.FromContext(ss.Context())
				peers <- p
				return h(impl, ss)
			}))
			cc := dialServer(t, lis)
			errs := make(chan error, n)
			for range n {
				stream := openChat(t, callContext(t), cc)
				go func() { errs <- say(stream, nil) }()
			}
			testnet.Eventually(t, "all handlers waiting", func() bool { return waiting.Load() == n })
			close(all)
			var first *peer.Peer
			for i := range n {
				if err := testnet.Receive(t, "an answer", errs); err != nil {
					t.Fatal(err)
				}
				p := testnet.Receive(t, "a peer", peers)
				if i == 0 {
					first = p
				}
				if p == nil || p != first || p.LocalAddr.String() != lis.Addr().String() || p.Addr.String() == "" {
					t.Errorf("got the peer %v, want one with the address %v, as the first, %v", p, lis.Addr(), first)
				}
			}
		})
	}
}
