package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// panicPlaces are the functions of a user's that a server calls.
var panicPlaces = []string{
	"unary handler", "stream handler", "unary interceptor", "stream interceptor", "tap",
	"TagConn", "HandleConn", "TagRPC", "HandleRPC",
}

// TestServerPanics: a panic of the user's code ends the program, as with grpc-go, and says where.
func TestServerPanics(t *testing.T) {
	for _, place := range panicPlaces {
		for _, kind := range []string{"grpc-go", "NewServer", "Wrap"} {
			if place == "tap" && kind == "grpc-go" {
				continue // its panic waits for the end of the connection, which waits for the tap
			}
			child := testnet.StartChild(t, "panic", "PLACE="+place, "KIND="+kind)
			answers, _ := io.ReadAll(child.Stdout)
			err := child.Wait()
			if strings.Contains(string(answers), "Internal") { // instead of nothing
				t.Errorf("%s, %s: before the end of the program the client got %s", kind, place, answers)
			}
			if err == nil || !strings.HasPrefix(child.Stderr(), "panic: at "+place) || !strings.Contains(child.Stderr(), "grpcadapter.panicker.at(") {
				t.Errorf("%s, %s: got %v", kind, place, err)
			}
		}
	}
}

// TestServerGoexit: a handler that ends its goroutine resets its call, and the program goes on.
func TestServerGoexit(t *testing.T) {
	testnet.NoLeaks(t)
	for _, kind := range serverKinds[1:] {
		lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
		serveOn(t, lis, panicker("exit").server(kind))
		cc := dialServer(t, lis)
		for _, test := range []struct {
			method string
			want   codes.Code
		}{{"/panic/Stream", codes.Internal}, {"/panic/Unary", codes.OK}} {
			if err := cc.Invoke(callContext(t), test.method, new(wrapperspb.BytesValue), new(wrapperspb.BytesValue)); status.Code(err) != test.want {
				t.Errorf("%s: %s: got %v, want %v", kind.name, test.method, err, test.want)
			}
		}
	}
}

// panicker panics at one place.
type panicker string

func (p panicker) at(place string) {
	if string(p) == place {
		panic("at " + place)
	}
}

func (p panicker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	p.at("TagConn")
	return ctx
}

func (p panicker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	p.at("TagRPC")
	return ctx
}
func (p panicker) HandleConn(context.Context, stats.ConnStats) { p.at("HandleConn") }
func (p panicker) HandleRPC(context.Context, stats.RPCStats)   { p.at("HandleRPC") }

func (p panicker) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
	p.at("unary interceptor")
	return h(ctx, req)
}

func (p panicker) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	p.at("stream interceptor")
	return h(srv, ss)
}

func (p panicker) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p.at("tap")
	return ctx, nil
}

func (p panicker) service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "panic", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{unaryMethod("/panic/Unary", func(_ context.Context, in *wrapperspb.BytesValue) (any, error) {
			p.at("unary handler")
			return in, nil
		})},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ClientStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
			p.at("stream handler")
			if p == "exit" {
				runtime.Goexit()
			}
			return s.SendMsg(new(wrapperspb.BytesValue))
		}}},
	}
}

// server returns a server of a kind.
func (p panicker) server(kind serverKind) testServer {
	srv := kind.make([]grpc.ServerOption{
		grpc.UnaryInterceptor(p.unary), grpc.StreamInterceptor(p.stream), grpc.InTapHandle(p.tap), grpc.StatsHandler(p),
	}, []Option{ChainUnaryInterceptor(p.unary), ChainStreamInterceptor(p.stream), InTapHandle(p.tap), StatsHandler(p)})
	srv.RegisterService(p.service(), nil)
	return srv
}

// panicInChild serves, and calls, until the program ends.
func panicInChild() {
	kind := slices.IndexFunc(serverKinds, func(k serverKind) bool { return k.name == os.Getenv("KIND") })
	srv := panicker(os.Getenv("PLACE")).server(serverKinds[kind])
	lis, err := percore.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go srv.Serve(lis)
	cc, err := grpc.NewClient("passthrough:///"+lis.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	for _, method := range []string{"/panic/Unary", "/panic/Stream"} {
		fmt.Println(cc.Invoke(ctx, method, new(wrapperspb.BytesValue), new(wrapperspb.BytesValue)))
	}
}
