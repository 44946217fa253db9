package grpcinterop

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

// spans is a collector that passes the names of spans on.
type spans struct {
	collector.UnimplementedTraceServiceServer
	names chan string
}

func (s spans) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, of := range r.GetResourceSpans() {
		for _, scope := range of.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				s.names <- span.GetName()
			}
		}
	}
	return new(collector.ExportTraceServiceResponse), nil
}

// TestOTLP: OpenTelemetry's exporter takes the ClientConn of a Client, and leaves it open.
func TestOTLP(t *testing.T) {
	for _, client := range []side{sides[0], ownClient} {
		t.Run(client.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			srv := grpcadapter.NewServer()
			all := spans{names: make(chan string, 10)}
			collector.RegisterTraceServiceServer(srv, all)
			ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
			serveGRPC(t, srv, ln)
			ctx, cancel := context.WithTimeout(t.Context(), testnet.HangTimeout)
			defer cancel()
			cc, err := client.dial(target(ln.Addr()), insecure.NewCredentials(), "")
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithGRPCConn(cc))
			if err != nil {
				t.Fatal(err)
			}
			provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter))
			_, span := provider.Tracer("x").Start(ctx, "a span")
			span.End()
			if got := testnet.Receive(t, "a span", all.names); got != "a span" {
				t.Errorf("got the span %q", got)
			}
			if err := provider.Shutdown(ctx); err != nil {
				t.Error(err)
			}
			if _, err := collector.NewTraceServiceClient(cc).Export(ctx, nil); err != nil {
				t.Errorf("the exporter has not left its ClientConn open: %v", err)
			}
		})
	}
}
