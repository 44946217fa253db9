package grpcinterop

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"google.golang.org/grpc"
	"google.golang.org/grpc/authz"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats/opentelemetry"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// policy allows two methods, and one of them only with a field of metadata.
const policy = `{
	"name": "test",
	"allow_rules": [
		{"name": "unary", "request": {"paths": ["/grpc.testing.TestService/EmptyCall"]}},
		{"name": "stream", "request": {"paths": ["/grpc.testing.TestService/FullDuplexCall"],
			"headers": [{"key": "role", "values": ["friend"]}]}}
	]
}`

// TestContextValues: packages of grpc-go that look in a call's context for values of grpc-go's own
// (authz for the server and the connection, stats/opentelemetry for the server's services) do the same
// past grpc-go's transport.
func TestContextValues(t *testing.T) {
	var want string
	for _, side := range []side{sides[0], pastServer} {
		t.Run(side.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			rights, err := authz.NewStatic(policy)
			if err != nil {
				t.Fatal(err)
			}
			reader := metric.NewManualReader()
			provider := metric.NewMeterProvider(metric.WithReader(reader))
			srv := adapted{grpc.NewServer(
				grpc.ChainUnaryInterceptor(rights.UnaryInterceptor), grpc.ChainStreamInterceptor(rights.StreamInterceptor),
				opentelemetry.ServerOption(opentelemetry.Options{MetricsOptions: opentelemetry.MetricsOptions{MeterProvider: provider}}),
			), side.serve}
			testgrpc.RegisterTestServiceServer(srv, interop.NewTestServer())
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			serveGRPC(t, srv, ln)
			got := callWithRights(t, ln.Addr().String())
			srv.GracefulStop()
			got += "\n" + countedCalls(t, reader)
			if want == "" {
				want = got
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			for _, s := range []string{"EmptyCall OK", "UnaryCall PermissionDenied", "stranger PermissionDenied", "friend OK",
				"grpc.method=grpc.testing.TestService/FullDuplexCall grpc.status=OK 1"} {
				if !strings.Contains(got, s) {
					t.Errorf("there is no %q in\n%s", s, got)
				}
			}
		})
	}
}

// callWithRights makes calls, some of which are not allowed, and returns their codes.
func callWithRights(t *testing.T, address string) string {
	cc, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
	defer cancel()
	client := testgrpc.NewTestServiceClient(cc)
	_, empty := client.EmptyCall(ctx, new(testgrpc.Empty))
	_, unary := client.UnaryCall(ctx, new(testgrpc.SimpleRequest))
	lines := []string{fmt.Sprint("EmptyCall ", status.Code(empty)), fmt.Sprint("UnaryCall ", status.Code(unary))}
	for _, role := range []string{"stranger", "friend"} {
		stream, err := client.FullDuplexCall(metadata.AppendToOutgoingContext(ctx, "role", role))
		if err == nil {
			err = stream.CloseSend()
		}
		for err == nil {
			_, err = stream.Recv()
		}
		if err == io.EOF {
			err = nil
		}
		lines = append(lines, fmt.Sprint(role, " ", status.Code(err)))
	}
	return strings.Join(lines, "\n")
}

// countedCalls returns how many calls of each method have ended, by their code.
func countedCalls(t *testing.T, reader *metric.ManualReader) string {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if times, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "grpc.server.call.duration" {
				for _, p := range times.DataPoints {
					method, _ := p.Attributes.Value("grpc.method")
					code, _ := p.Attributes.Value("grpc.status")
					lines = append(lines, fmt.Sprintf("grpc.method=%s grpc.status=%s %d", method.AsString(), code.AsString(), p.Count))
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
