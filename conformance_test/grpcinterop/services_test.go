package grpcinterop

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/auth"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/recovery"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// script is a service that panics, fails and answers as it is told by the request's payload.
type script struct {
	testgrpc.UnimplementedTestServiceServer
}

func (script) UnaryCall(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	switch text := string(in.GetPayload().GetBody()); text {
	case "panic":
		panic("told to")
	case "fail":
		return nil, status.Error(codes.DataLoss, "told to")
	default:
		return &testgrpc.SimpleResponse{Payload: in.Payload}, nil
	}
}

func (script) FullDuplexCall(stream grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	if string(in.GetPayload().GetBody()) == "panic" {
		panic("told to")
	}
	return stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: in.Payload})
}

// lines is a log of lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
}

// limiter lets a number of calls pass.
type limiter struct {
	mu   sync.Mutex
	left int
}

func (l *limiter) Limit(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left--; l.left < 0 {
		return errors.New("too many calls")
	}
	return nil
}

// middleware returns the interceptors of go-grpc-middleware.
func middleware(log *lines) ([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor) {
	logger := logging.LoggerFunc(func(_ context.Context, level logging.Level, msg string, fields ...any) {
		var words []string
		for i := 0; i+1 < len(fields); i += 2 {
			switch name := fmt.Sprint(fields[i]); name {
			case "grpc.start_time", "grpc.time_ms", "peer.address", "grpc.request.deadline":
				words = append(words, name)
			default:
				words = append(words, fmt.Sprint(name, "=", fields[i+1]))
			}
		}
		slices.Sort(words)
		log.add(fmt.Sprint(level, " ", msg, " ", words))
	})
	check := func(ctx context.Context) (context.Context, error) {
		token, err := auth.AuthFromMD(ctx, "bearer")
		if err != nil {
			return nil, err
		}
		if token != "right" {
			return nil, status.Error(codes.Unauthenticated, "the token is wrong")
		}
		return ctx, nil
	}
	rescue := recovery.WithRecoveryHandler(func(p any) error { return status.Errorf(codes.Internal, "rescued: %v", p) })
	limit := &limiter{left: 12}
	return []grpc.UnaryServerInterceptor{logging.UnaryServerInterceptor(logger), ratelimit.UnaryServerInterceptor(limit),
			auth.UnaryServerInterceptor(check), recovery.UnaryServerInterceptor(rescue)},
		[]grpc.StreamServerInterceptor{logging.StreamServerInterceptor(logger), ratelimit.StreamServerInterceptor(limit),
			auth.StreamServerInterceptor(check), recovery.StreamServerInterceptor(rescue)}
}

// spanText describes a span, without what differs from run to run.
func spanText(s sdktrace.ReadOnlySpan) string {
	var words []string
	for _, a := range s.Attributes() {
		switch key := string(a.Key); {
		case strings.HasSuffix(key, "port"), strings.HasSuffix(key, "peer.port"):
			words = append(words, key)
		default:
			words = append(words, fmt.Sprint(key, "=", a.Value.String()))
		}
	}
	slices.Sort(words)
	return fmt.Sprint(s.Name(), " ", s.SpanKind(), " ", s.Status(), " parent ", s.Parent().IsValid(), " ", words)
}

// ways are the servers that TestServices and TestThirdParty compare.
var ways = []struct {
	name string
	make func([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor, *sdktrace.TracerProvider) server
}{
	{"grpc-go", func(u []grpc.UnaryServerInterceptor, s []grpc.StreamServerInterceptor, tp *sdktrace.TracerProvider) server {
		return grpc.NewServer(grpc.ChainUnaryInterceptor(u...), grpc.ChainStreamInterceptor(s...),
			grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(tp))))
	}},
	{"Wrap", func(u []grpc.UnaryServerInterceptor, s []grpc.StreamServerInterceptor, tp *sdktrace.TracerProvider) server {
		return adapted{grpc.NewServer(grpc.ChainUnaryInterceptor(u...), grpc.ChainStreamInterceptor(s...),
			grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(tp)))), pastServer.serve}
	}},
	{"NewServer", func(u []grpc.UnaryServerInterceptor, s []grpc.StreamServerInterceptor, tp *sdktrace.TracerProvider) server {
		return grpcadapter.NewServer(grpcadapter.ChainUnaryInterceptor(u...), grpcadapter.ChainStreamInterceptor(s...),
			grpcadapter.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(tp))))
	}},
}

// TestServices: health, both versions of reflection, go-grpc-middleware and OpenTelemetry do the
// same on all servers.
func TestServices(t *testing.T) {
	var want string
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			log, spans := new(lines), tracetest.NewSpanRecorder()
			tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
			unary, stream := middleware(log)
			srv := way.make(unary, stream, tp)
			testgrpc.RegisterTestServiceServer(srv, script{})
			healthServer := health.NewServer()
			healthpb.RegisterHealthServer(srv, healthServer)
			reflection.Register(srv.(reflection.GRPCServer))
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			serveGRPC(t, srv, ln)
			got := callServices(t, ln, healthServer)
			srv.(interface{ GracefulStop() }).GracefulStop()
			for _, s := range spans.Ended() {
				log.add(spanText(s))
			}
			slices.Sort(log.all) // the end of a call that was cancelled may come before the next one, or after
			got += "\n" + strings.Join(log.all, "\n")
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if !strings.Contains(got, "rescued: told to") || !strings.Contains(got, "the token is wrong") || !strings.Contains(got, "too many calls") ||
				len(spans.Ended()) < 10 {
				t.Errorf("the middleware has not done its work: %s", got)
			}
		})
	}
}

// callServices makes calls, and returns the results.
func callServices(t *testing.T, ln net.Listener, healthServer *health.Server) string {
	cc, err := grpc.NewClient(target(ln.Addr()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	var results []string
	note := func(v any, err error) { results = append(results, fmt.Sprint(v, " ", err)) }
	right := metadata.AppendToOutgoingContext(ctx, "authorization", "bearer right")
	wrong := metadata.AppendToOutgoingContext(ctx, "authorization", "bearer wrong")
	client := testgrpc.NewTestServiceClient(cc)
	for _, text := range []string{"hello", "fail", "panic"} {
		out, err := client.UnaryCall(right, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: []byte(text)}})
		note(string(out.GetPayload().GetBody()), err)
	}
	for _, ctx := range []context.Context{ctx, wrong} {
		_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{})
		note("", err)
	}
	for _, text := range []string{"hello", "panic"} {
		stream, err := client.FullDuplexCall(right)
		if err == nil {
			err = stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: []byte(text)}})
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		for err == nil {
			var out *testgrpc.StreamingOutputCallResponse
			out, err = stream.Recv()
			note(string(out.GetPayload().GetBody()), err)
		}
	}
	noteHealth(right, t, cc, healthServer, note)
	for _, method := range []string{"v1", "v1alpha"} {
		stream, err := cc.NewStream(right, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
			"/grpc.reflection."+method+".ServerReflection/ServerReflectionInfo")
		if err == nil { // the messages of both versions are the same on the wire
			err = stream.SendMsg(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
		}
		out := new(reflectionpb.ServerReflectionResponse)
		if err == nil {
			err = stream.RecvMsg(out)
		}
		var names []string
		for _, s := range out.GetListServicesResponse().GetService() {
			names = append(names, s.Name)
		}
		note(names, err)
		_ = stream.CloseSend()
		note("end", stream.RecvMsg(out))
	}
	for range 5 { // more than the limit
		_, err = client.UnaryCall(right, &testgrpc.SimpleRequest{})
		note("", err)
	}
	return strings.Join(results, "\n")
}

// noteHealth checks and watches the health of the server.
func noteHealth(ctx context.Context, t *testing.T, cc *grpc.ClientConn, srv *health.Server, note func(any, error)) {
	client := healthpb.NewHealthClient(cc)
	out, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	note(out.GetStatus(), err)
	watching, cancel := context.WithTimeout(ctx, time.Hour)
	defer cancel()
	watch, err := client.Watch(watching, &healthpb.HealthCheckRequest{Service: "x"})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []healthpb.HealthCheckResponse_ServingStatus{healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING} {
		out, err := watch.Recv()
		note(out.GetStatus(), err)
		srv.SetServingStatus("x", state)
	}
	out, err = watch.Recv()
	note(out.GetStatus(), err)
	cancel()
	for err == nil {
		_, err = watch.Recv()
	}
	note("watch", err)
}
