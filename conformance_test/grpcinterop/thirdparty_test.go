package grpcinterop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	grpcprometheus "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	validating "github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/protovalidate"
	"github.com/grpc-ecosystem/go-grpc-middleware/v2/testing/testvalidate"
	validatepb "github.com/grpc-ecosystem/go-grpc-middleware/v2/testing/testvalidate/v1"
	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // what clients of connect-go send
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestThirdParty: the interceptors of Prometheus and protovalidate, grpc-gateway and clients of
// connect-go do the same with all servers, and with a Client below them. Package channelz has the admin
// service.
func TestThirdParty(t *testing.T) {
	var want []string
	clients := []side{sides[0], ownClient}
	for i := range len(ways) * len(clients) {
		way, client := ways[i/len(clients)], clients[i%len(clients)]
		t.Run(way.name+"/"+client.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			validator, err := protovalidate.New()
			if err != nil {
				t.Fatal(err)
			}
			metrics := grpcprometheus.NewServerMetrics(grpcprometheus.WithServerHandlingTimeHistogram())
			registry := prometheus.NewRegistry()
			registry.MustRegister(metrics)
			srv := way.make(
				[]grpc.UnaryServerInterceptor{metrics.UnaryServerInterceptor(), validating.UnaryServerInterceptor(validator)},
				[]grpc.StreamServerInterceptor{metrics.StreamServerInterceptor(), validating.StreamServerInterceptor(validator)},
				sdktrace.NewTracerProvider())
			testgrpc.RegisterTestServiceServer(srv, interop.NewTestServer())
			validatepb.RegisterTestValidateServiceServer(srv, new(testvalidate.TestValidateService))
			healthpb.RegisterHealthServer(srv, health.NewServer())
			metrics.InitializeMetrics(srv.(reflection.ServiceInfoProvider))
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			serveGRPC(t, srv, ln)

			var log lines
			cc, err := client.dial(target(ln.Addr()), insecure.NewCredentials(), "")
			if err != nil {
				t.Fatal(err)
			}
			callThirdParty(t, ln, cc, &log)
			srv.(interface{ GracefulStop() }).GracefulStop() // the interceptors have returned
			noteMetrics(t, registry, &log)
			got := log.all
			if want == nil {
				want = got
			}
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("from line %d on: got\n%s\nwant\n%s", i, strings.Join(got[i:], "\n"), strings.Join(want[i:], "\n"))
				}
			}
			all := strings.Join(got, "\n")
			for _, s := range []string{"must be a valid email address", `"status":"SERVING"`, "grpc_server_handled_total"} {
				if !strings.Contains(all, s) {
					t.Errorf("there is no %q in what was done: %s", s, all)
				}
			}
		})
	}
}

// callThirdParty makes the calls, and notes the results.
func callThirdParty(t *testing.T, ln net.Listener, cc *grpc.ClientConn, log *lines) {
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	noteValidation(ctx, t, cc, log)
	noteGateway(t, cc, log)
	client := testnet.HTTP2Client(t, nil)
	for _, options := range [][]connect.ClientOption{{connect.WithGRPC()}, {connect.WithGRPC(), connect.WithSendGzip()}} {
		noteConnect(ctx, t, client, "http://"+ln.Addr().String(), log, options...)
	}
}

// noteValidation sends messages, half of which break a rule.
func noteValidation(ctx context.Context, t *testing.T, cc *grpc.ClientConn, log *lines) {
	client := validatepb.NewTestValidateServiceClient(cc)
	for _, m := range []*validatepb.SendRequest{testvalidate.GoodUnaryRequest, testvalidate.BadUnaryRequest} {
		_, err := client.Send(ctx, m)
		log.add(fmt.Sprint("validated: ", err, " ", status.Convert(err).Details()))
	}
	for _, m := range []*validatepb.SendStreamRequest{testvalidate.GoodStreamRequest, testvalidate.BadStreamRequest} {
		stream, err := client.SendStream(ctx, m)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; err == nil; n++ {
			_, err = stream.Recv()
		}
		log.add(fmt.Sprint("validated stream: ", n, " ", err))
	}
}

// gateway is what the generator of grpc-gateway makes of two methods.
func gateway(client testgrpc.TestServiceClient, of healthpb.HealthClient) (*runtime.ServeMux, error) {
	mux := runtime.NewServeMux(runtime.WithHealthzEndpoint(of))
	begin := func(w http.ResponseWriter, r *http.Request, method string, in proto.Message) (context.Context, runtime.Marshaler, bool) {
		from, to := runtime.MarshalerForRequest(mux, r)
		ctx, err := runtime.AnnotateContext(r.Context(), mux, r, "/grpc.testing.TestService/"+method)
		if err == nil {
			if err = from.NewDecoder(r.Body).Decode(in); err != nil {
				err = status.Error(codes.InvalidArgument, "the body is wrong")
			}
		}
		if err != nil {
			runtime.HTTPError(r.Context(), mux, to, w, r, err)
		}
		return ctx, to, err == nil
	}
	err := mux.HandlePath("POST", "/v1/unary", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		in := new(testgrpc.SimpleRequest)
		ctx, to, ok := begin(w, r, "UnaryCall", in)
		if !ok {
			return
		}
		var md runtime.ServerMetadata
		out, err := client.UnaryCall(ctx, in, grpc.Header(&md.HeaderMD), grpc.Trailer(&md.TrailerMD))
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, to, w, r, err)
			return
		}
		runtime.ForwardResponseMessage(ctx, mux, to, w, r, out)
	})
	if err != nil {
		return nil, err
	}
	return mux, mux.HandlePath("POST", "/v1/stream", func(w http.ResponseWriter, r *http.Request, _ map[string]string) {
		in := new(testgrpc.StreamingOutputCallRequest)
		ctx, to, ok := begin(w, r, "StreamingOutputCall", in)
		if !ok {
			return
		}
		stream, err := client.StreamingOutputCall(ctx, in)
		var md runtime.ServerMetadata
		if err == nil {
			md.HeaderMD, err = stream.Header()
		}
		ctx = runtime.NewServerMetadataContext(ctx, md)
		if err != nil {
			runtime.HTTPError(ctx, mux, to, w, r, err)
			return
		}
		runtime.ForwardResponseStream(ctx, mux, to, w, r, func() (proto.Message, error) { return stream.Recv() })
	})
}

// noteGateway sends requests in JSON to a gateway in front of the server. The interop service sends two
// fields of metadata back.
func noteGateway(t *testing.T, cc *grpc.ClientConn, log *lines) {
	mux, err := gateway(testgrpc.NewTestServiceClient(cc), healthpb.NewHealthClient(cc))
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range []struct{ method, path, body string }{
		{"GET", "/healthz", ""},
		{"GET", "/healthz?service=unknown", ""},
		{"POST", "/v1/unary", `{"responseSize": 5}`},
		{"POST", "/v1/unary", `{"responseSize": "5`},
		{"POST", "/v1/unary", `{"responseStatus": {"code": 5, "message": "a 100 % missing \u00e4"}}`},
		{"POST", "/v1/stream", `{"responseParameters": [{"size": 1}, {"size": 100000}]}`},
		{"POST", "/v1/stream", `{"responseParameters": [{"size": -1}]}`},
	} {
		r := httptest.NewRequest(request.method, request.path, strings.NewReader(request.body))
		r.Header.Set("Grpc-Metadata-X-Grpc-Test-Echo-Initial", "first")
		r.Header.Set("Grpc-Metadata-X-Grpc-Test-Echo-Trailing-Bin", "bGFzdA==")
		r.Header.Set("Grpc-Timeout", "1M")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		var header []string
		for name, values := range w.Result().Header {
			header = append(header, fmt.Sprint(name, values))
		}
		slices.Sort(header)
		// protobuf's JSON has spaces at random.
		body := strings.ReplaceAll(w.Body.String(), " ", "")
		log.add(fmt.Sprint("gateway: ", request.path, " ", w.Code, " ", header, " ", w.Result().Trailer, " ", body))
	}
}

// noteConnect makes calls of each kind with connect-go.
func noteConnect(ctx context.Context, t *testing.T, hc *http.Client, url string, log *lines, options ...connect.ClientOption) {
	url += "/grpc.testing.TestService/"
	note := func(what string, err error) {
		log.add(fmt.Sprint("connect: ", what, " ", err, " ", connect.CodeOf(err)))
	}
	unary := connect.NewClient[testgrpc.SimpleRequest, testgrpc.SimpleResponse](hc, url+"UnaryCall", options...)
	for _, in := range []*testgrpc.SimpleRequest{
		{ResponseSize: 300_000, Payload: &testgrpc.Payload{Body: make([]byte, 300_000)}},
		{ResponseStatus: &testgrpc.EchoStatus{Code: 9, Message: "as you like"}},
	} {
		req := connect.NewRequest(in)
		req.Header().Set("X-Grpc-Test-Echo-Initial", "first")
		out, err := unary.CallUnary(ctx, req)
		if err == nil {
			note(fmt.Sprint("unary ", len(out.Msg.GetPayload().GetBody()), out.Header()["X-Grpc-Test-Echo-Initial"]), err)
		} else {
			note("unary", err)
		}
	}
	_, err := connect.NewClient[testgrpc.Empty, testgrpc.Empty](hc, url+"NoSuchCall", options...).
		CallUnary(ctx, connect.NewRequest(new(testgrpc.Empty)))
	note("unknown", err)

	in := connect.NewClient[testgrpc.StreamingInputCallRequest, testgrpc.StreamingInputCallResponse](hc, url+"StreamingInputCall", options...).
		CallClientStream(ctx)
	for range 3 {
		if err := in.Send(&testgrpc.StreamingInputCallRequest{Payload: &testgrpc.Payload{Body: make([]byte, 50_000)}}); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := in.CloseAndReceive()
	if err != nil {
		t.Fatal(err)
	}
	note(fmt.Sprint("input ", sum.Msg.GetAggregatedPayloadSize()), nil)

	sizes := []*testgrpc.ResponseParameters{{Size: 10}, {Size: 200_000}, {Size: 0}}
	out, err := connect.NewClient[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse](hc, url+"StreamingOutputCall", options...).
		CallServerStream(ctx, connect.NewRequest(&testgrpc.StreamingOutputCallRequest{ResponseParameters: sizes}))
	if err != nil {
		t.Fatal(err)
	}
	for out.Receive() {
		note(fmt.Sprint("output ", len(out.Msg().GetPayload().GetBody())), nil)
	}
	note("output", errors.Join(out.Err(), out.Close()))

	both := connect.NewClient[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse](hc, url+"FullDuplexCall", options...).
		CallBidiStream(ctx)
	for range 3 {
		err := both.Send(&testgrpc.StreamingOutputCallRequest{ResponseParameters: sizes[:1]})
		if err != nil {
			t.Fatal(err)
		}
		msg, err := both.Receive()
		note(fmt.Sprint("both ", len(msg.GetPayload().GetBody())), err)
	}
	if err := both.CloseRequest(); err != nil {
		t.Fatal(err)
	}
	_, err = both.Receive()
	note(fmt.Sprint("both ", errors.Is(err, io.EOF)), both.CloseResponse())
}

// noteMetrics notes all metrics but times.
func noteMetrics(t *testing.T, registry *prometheus.Registry, log *lines) {
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount()); n > 0 {
				log.add(fmt.Sprint(f.GetName(), " ", n, " ", m.GetLabel()))
			}
		}
	}
}
