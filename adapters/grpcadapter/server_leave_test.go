package grpcadapter

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
	"github.com/percore/percore/internal/testnet/frames"
)

// leavingClients are the points at which clients leave, in bytes that they have sent.
func leavingClients(t *testing.T) (all []leavingClient) {
	add := func(name, path string, send func(p *frames.Peer)) {
		p := frames.NewPeer(t, nil)
		if path != "" {
			call(p, 1, path)
		}
		send(p)
		all = append(all, leavingClient{name + " " + path, path, p.Out})
	}
	cut := func(p *frames.Peer) { p.Out = p.Out[:len(p.Out)-3] }
	add("at once", "", func(p *frames.Peer) { p.Out = nil })
	add("in the preface", "", func(p *frames.Peer) { p.Out = p.Out[:20] })
	add("in SETTINGS", "", cut)
	add("behind SETTINGS", "", func(p *frames.Peer) {})
	add("in HEADERS", "", func(p *frames.Peer) { cut(call(p, 1, "/Leaving/Chat")) })
	add("before CONTINUATION", "", func(p *frames.Peer) { p.Frame(frames.Headers, 0, 1, []byte{0x83}) })
	for _, path := range []string{"/Leaving/Unary", "/Leaving/Chat"} {
		add("behind HEADERS", path, func(p *frames.Peer) {})
		add("in the head of a message", path, func(p *frames.Peer) { p.Data(1, goodMessage[:3], false) })
		add("in a message", path, func(p *frames.Peer) { p.Data(1, goodMessage[:7], false) })
		add("in DATA", path, func(p *frames.Peer) { cut(p.Data(1, goodMessage, false)) })
	}
	add("behind a message", "/Leaving/Chat", func(p *frames.Peer) { p.Data(1, goodMessage, false) })
	add("behind the last message", "/Leaving/Late", func(p *frames.Peer) { p.Data(1, goodMessage, true) })
	add("in an answer", "/Leaving/Flood", func(p *frames.Peer) { p.Data(1, goodMessage, true) })
	add("in a detached answer", "/Watches/Watch", func(p *frames.Peer) { p.Data(1, goodMessage, true) })
	add("in a detached answer, and a message", "/Watches/Chat", func(p *frames.Peer) {
		cut(p.Data(1, goodMessage, false).Data(1, goodMessage, false))
	})
	return all
}

// A leavingClient leaves when it has sent something.
type leavingClient struct {
	name, path string
	sends      []byte
}

// leavingService tells which calls have begun, and how they end.
func leavingService(begun chan<- bool, ended chan<- string) *grpc.ServiceDesc {
	end := func(ctx context.Context, err error) {
		if err == io.EOF {
			err = nil
		}
		<-ctx.Done()
		ended <- fmt.Sprint(status.Code(err), ", ", ctx.Err())
	}
	return &grpc.ServiceDesc{
		ServiceName: "Leaving", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: "Unary", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				begun <- true
				err := decode(new(wrapperspb.BytesValue))
				end(ctx, err)
				return nil, err
			}},
			{MethodName: "Late", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				err := decode(new(wrapperspb.BytesValue))
				begun <- true
				end(ctx, err)
				return nil, err
			}},
		},
		Streams: []grpc.StreamDesc{
			{StreamName: "Chat", ServerStreams: true, ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) (err error) {
				begun <- true
				for err == nil {
					err = s.RecvMsg(new(wrapperspb.BytesValue))
				}
				end(s.Context(), err)
				return err
			}},
			{StreamName: "Flood", ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) (err error) {
				begun <- true
				for err == nil {
					err = s.SendMsg(wrapperspb.Bytes(make([]byte, 8<<10)))
				}
				end(s.Context(), err)
				return err
			}},
		},
	}
}

// TestServerPeersLeave: clients that leave at any point of a call, in clear and over TLS, with FIN and
// RST. Their handlers learn the same as with grpc-go, detached answers end, the calls of another
// connection go on, and nothing is kept.
func TestServerPeersLeave(t *testing.T) {
	config, client := testnet.TLS(t)
	client.NextProtos = []string{"h2"}
	for _, secure := range []bool{false, true} {
		server, clients := insecure.NewCredentials(), insecure.NewCredentials()
		if secure {
			server, clients = credentials.NewTLS(config), credentials.NewTLS(client)
		}
		learnt := make(map[string]string) // by grpc-go's handlers
		for i, kind := range serverKinds {
			t.Run(fmt.Sprintf("%s, TLS %t", kind.name, secure), func(t *testing.T) {
				testnet.NoLeaks(t)
				lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
				begun, ended := make(chan bool, 1), make(chan string, 1)
				w := newWatches(t)
				detached := make(chan error, 1)
				w.do = func(_ string, stream grpc.ServerStream) error {
					return Detach(stream, func(s *Answer) {
						begun <- true
						s.OnEnd(func(err error) { detached <- err })
					})
				}
				srv := kind.make([]grpc.ServerOption{grpc.Creds(server)}, []Option{Creds(server)})
				serveOn(t, lis, srv, &echo, leavingService(begun, ended), w.desc())
				other := dialServer(t, lis, grpc.WithTransportCredentials(clients))
				lasting := openChat(t, callContext(t), other)
				for _, c := range leavingClients(t) {
					for _, ending := range []string{"FIN", "RST"} {
						raw := testnet.Dial(t, lis)
						nc := raw
						if secure && len(c.sends) > 0 {
							nc = tls.Client(raw, client)
						}
						if _, err := nc.Write(c.sends); err != nil {
							t.Errorf("%s: %v", c.name, err)
						}
						if c.path != "" {
							testnet.Receive(t, c.name+": the handler", begun)
						}
						testnet.Within(t, c.name+": the server's end of the connection", func() { testnet.HangUp(raw.(*net.TCPConn), ending == "RST") })
						name, got := c.name+", "+ending, ""
						switch c.path {
						case "":
						case "/Watches/Watch", "/Watches/Chat":
							got = fmt.Sprint(testnet.Receive(t, name+": the end of the Answer", detached) != nil)
						default:
							got = testnet.Receive(t, name+": the end of the call", ended)
						}
						if i == 0 {
							learnt[name] = got
						} else if want := learnt[name]; got != want {
							t.Errorf("%s: the handler has got %s, want %s", name, got, want)
						}
						if err := say(lasting, pattern(100)); err != nil {
							t.Fatalf("%s: another client: %v", name, err)
						}
					}
				}
				if err := callUnary(callContext(t), other, pattern(100)); err != nil {
					t.Error(err)
				}
				_ = lasting.CloseSend()
				testnet.Within(t, "GracefulStop", srv.GracefulStop)
				if counts, ok := srv.(ownServer); ok {
					testnet.Eventually(t, "the end of all calls and connections", func() bool {
						s := counts.Stats()
						return s.Calls == 0 && s.Detached == 0 && s.HTTP2.Streams == 0 && s.HTTP2.Conns == 0
					})
				}
			})
		}
	}
}
