package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// grpcTransports are the transports on which a grpc.Server is tested.
var grpcTransports = []struct {
	name string
	kind testnet.Kind
	tls  bool
}{
	{"tcp", testnet.TCP4, false},
	{"tcp6", testnet.TCP6, false},
	{"unix", testnet.Unix, false},
	{"abstract", testnet.Abstract, false},
	{"TLS", testnet.TCP4, true},
}

// maxMessage limits the messages of the echo service: five times gRPC's default.
const maxMessage = 20 << 20

// echoService is a handwritten service with bytes for messages, so that the tests need no generated
// code. It has a unary call and a bidirectional stream.
var echoService = grpc.ServiceDesc{
	ServiceName: "percore.test.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{
		MethodName: "Unary",
		Handler: func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
			var in wrapperspb.BytesValue
			if err := decode(&in); err != nil || intercept == nil {
				return &in, err
			}
			info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/percore.test.Echo/Unary"}
			return intercept(ctx, &in, info, func(_ context.Context, req any) (any, error) { return req, nil })
		},
	}},
	Streams: []grpc.StreamDesc{{
		StreamName:    "Chat",
		ServerStreams: true,
		ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				var in wrapperspb.BytesValue
				if err := stream.RecvMsg(&in); err == io.EOF {
					return nil
				} else if err != nil {
					return err
				}
				if err := stream.SendMsg(&in); err != nil {
					return err
				}
			}
		},
	}},
}

// chat opens the echo service's stream.
func chat(ctx context.Context, cc *grpc.ClientConn) (grpc.ClientStream, error) {
	return cc.NewStream(ctx, &echoService.Streams[0], "/percore.test.Echo/Chat")
}

// echoUnary calls the echo service and checks the answer.
func echoUnary(ctx context.Context, cc *grpc.ClientConn, message []byte, opts ...grpc.CallOption) error {
	var out wrapperspb.BytesValue
	if err := cc.Invoke(ctx, "/percore.test.Echo/Unary", wrapperspb.Bytes(message), &out, opts...); err != nil {
		return err
	}
	if !bytes.Equal(out.Value, message) {
		return fmt.Errorf("got %s, want %s", digest(out.Value), digest(message))
	}
	return nil
}

// A grpcArm is a way to run a grpc.Server and a client for it.
type grpcArm struct {
	name   string
	listen testnet.ListenFunc
	serve  func(*grpc.Server, net.Listener) error
	client []grpc.DialOption
}

// onPercore makes a client dial with percore.
var onPercore = []grpc.DialOption{grpc.WithContextDialer(new(percore.Dialer).DialTarget)}

// grpcArms are the reference, the engine at both ends, and with a server past grpc-go's transport.
var grpcArms = []grpcArm{
	{netEngine.name, netEngine.listen, (*grpc.Server).Serve, nil},
	{percoreEngine.name, percoreEngine.listen, (*grpc.Server).Serve, onPercore},
	{"grpcadapter", percore.Listen, servePast, onPercore},
}

// servePast serves past grpc-go's transport. It fails if that was refused.
func servePast(s *grpc.Server, ln net.Listener) error {
	w := grpcadapter.Wrap(s)
	if err := w.Refusal(); err != nil {
		ln.Close()
		return err
	}
	return w.Serve(ln)
}

// A rig is a grpc.Server on an arm and a client for it.
type rig struct {
	arm    grpcArm
	ln     net.Listener
	server *grpc.Server
	health *health.Server
	client *grpc.ClientConn
}

// rigOptions are further options of a test.
type rigOptions struct {
	kind   testnet.Kind
	secure bool
	server []grpc.ServerOption
	client []grpc.DialOption
}

// onEachGRPC runs test with a fresh server for each arm and transport.
func onEachGRPC(t *testing.T, test func(t *testing.T, r *rig)) {
	for _, transport := range grpcTransports {
		onEachGRPCArm(t, transport.name, func(t *testing.T, arm grpcArm) {
			test(t, startGRPC(t, arm, rigOptions{kind: transport.kind, secure: transport.tls}))
		})
	}
}

// onEachGRPCArm runs test once for each arm, and checks each for leaks.
func onEachGRPCArm(t *testing.T, name string, test func(t *testing.T, arm grpcArm)) {
	for _, arm := range grpcArms {
		t.Run(arm.name+"/"+name, func(t *testing.T) {
			testnet.NoLeaks(t)
			test(t, arm)
		})
	}
}

func startGRPC(t *testing.T, arm grpcArm, o rigOptions) *rig {
	t.Helper()
	r := &rig{arm: arm, ln: testnet.Listen(t, arm.listen, o.kind), health: health.NewServer()}
	serverCredentials, clientCredentials := insecure.NewCredentials(), insecure.NewCredentials()
	if o.secure {
		serverConfig, clientConfig := testnet.TLS(t)
		serverCredentials, clientCredentials = credentials.NewTLS(serverConfig), credentials.NewTLS(clientConfig)
	}
	r.server = grpc.NewServer(append([]grpc.ServerOption{
		grpc.Creds(serverCredentials), grpc.MaxRecvMsgSize(maxMessage),
	}, o.server...)...)
	r.server.RegisterService(&echoService, nil)
	healthpb.RegisterHealthServer(r.server, r.health)
	served := make(chan error, 1)
	go func() { served <- arm.serve(r.server, r.ln) }()
	t.Cleanup(func() {
		r.server.Stop()
		if err := testnet.Receive(t, "Serve ending", served); err != nil {
			t.Errorf("Serve: got %v, want nil", err)
		}
	})
	var err error
	r.client, err = grpc.NewClient(grpcTarget(r.ln.Addr()), slices.Concat(arm.client, []grpc.DialOption{
		grpc.WithTransportCredentials(clientCredentials),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
	}, o.client)...)
	if err != nil {
		t.Fatalf("NewClient: %v", err)
	}
	t.Cleanup(func() { r.client.Close() })
	return r
}

// grpcTarget returns gRPC's name of an address (doc/naming.md in
// github.com/grpc/grpc).
func grpcTarget(addr net.Addr) string {
	address := addr.String()
	switch name, isAbstract := strings.CutPrefix(address, "@"); {
	case isAbstract:
		return "unix-abstract:" + name
	case addr.Network() == "unix":
		return "unix:" + address
	}
	return "passthrough:///" + address
}

// callContext limits calls that would otherwise wait forever for a dead server.
func callContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	t.Cleanup(cancel)
	return ctx
}

func TestGRPCUnary(t *testing.T) {
	onEachGRPC(t, func(t *testing.T, r *rig) {
		ctx := callContext(t)
		var from peer.Peer
		reply, err := healthpb.NewHealthClient(r.client).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Peer(&from))
		if err != nil || reply.Status != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("Check: got %v, %v, want SERVING", reply, err)
		}
		if got, want := from.Addr.String(), r.ln.Addr().String(); got != want {
			t.Errorf("got peer %s, want %s", got, want)
		}
		_, err = healthpb.NewHealthClient(r.client).Check(ctx, &healthpb.HealthCheckRequest{Service: "unknown"})
		if status.Code(err) != codes.NotFound {
			t.Errorf("Check of an unknown service: got %v, want NotFound", err)
		}
		for _, size := range []int{0, 1, 1000, 100_000, muchData / 8} {
			if err := echoUnary(ctx, r.client, pattern(size)); err != nil {
				t.Errorf("echo of %d: %v", size, err)
			}
		}
	})
}

// TestGRPCFlowControl sends far more than the windows hold before it reads any of it, so that
// writes on both sides stall.
func TestGRPCFlowControl(t *testing.T) {
	const messages, size = 100, 100_000
	onEachGRPC(t, func(t *testing.T, r *rig) {
		stream, err := chat(callContext(t), r.client)
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			for range messages {
				if err := stream.SendMsg(wrapperspb.Bytes(pattern(size))); err != nil {
					sent <- err
					return
				}
			}
			sent <- stream.CloseSend()
		}()
		time.Sleep(20 * time.Millisecond) // lets the windows fill
		for i := range messages {
			var reply wrapperspb.BytesValue
			if err := stream.RecvMsg(&reply); err != nil || !bytes.Equal(reply.Value, pattern(size)) {
				t.Fatalf("message %d: got %s, %v", i, digest(reply.Value), err)
			}
		}
		if err := testnet.Receive(t, "the sender", sent); err != nil {
			t.Errorf("sending: %v", err)
		}
	})
}

func TestGRPCGracefulStop(t *testing.T) {
	onEachGRPC(t, func(t *testing.T, r *rig) {
		stream, err := chat(callContext(t), r.client)
		if err != nil {
			t.Fatal(err)
		}
		exchange := func() error {
			err := stream.SendMsg(wrapperspb.Bytes(pattern(100)))
			return errors.Join(err, stream.RecvMsg(new(wrapperspb.BytesValue)))
		}
		if err := exchange(); err != nil {
			t.Fatal(err)
		}
		stopped := make(chan struct{})
		go func() {
			r.server.GracefulStop()
			close(stopped)
		}()
		testnet.Eventually(t, "the listener being closed", func() bool {
			c, err := net.Dial(r.ln.Addr().Network(), r.ln.Addr().String())
			if err == nil {
				c.Close()
			}
			return err != nil
		})
		if err := exchange(); err != nil {
			t.Errorf("the active stream while stopping: %v", err)
		}
		select {
		case <-stopped:
			t.Error("GracefulStop returned while a stream was active")
		default:
		}
		stream.CloseSend()
		testnet.Receive(t, "GracefulStop", stopped)
	})
}
