// Command grpcgateway takes HTTP and JSON, and calls gRPC servers: grpc-gateway's generated code with
// grpcadapter's client below it and percore's HTTP server before it. The service is OpenTelemetry's,
// whose module has that code: traces, metrics and logs of OTLP over HTTP go to a collector that speaks
// gRPC.
//
//	go run ./grpcgateway -addr localhost:4318 -to localhost:4317
//	curl -d '{"resourceSpans":[]}' localhost:4318/v1/traces
//
// With a service of your own, protoc-gen-grpc-gateway generates the functions that routes calls.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/adapters/httpadapter"
	"github.com/percore/percore/handover"
)

func main() {
	address := flag.String("addr", "localhost:4318", "address to listen on")
	to := flag.String("to", "localhost:4317", "target of the gRPC server")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	if err := serve(context.Background(), ln, *to); err != nil {
		log.Fatal(err)
	}
}

// serve serves until ctx ends or a signal comes, and then finishes the running requests.
func serve(ctx context.Context, ln net.Listener, target string) error {
	conn, err := grpcadapter.NewClient(target, grpcadapter.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	handler, err := routes(ctx, conn.ClientConn())
	if err != nil {
		return err
	}
	srv := httpadapter.Wrap(&http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second})
	service := handover.Service{Parts: []handover.Part{{Name: "http", Listener: ln, Server: srv}}}
	return service.Run(ctx)
}

// routes returns the handler of the services' paths.
func routes(ctx context.Context, conn *grpc.ClientConn) (http.Handler, error) {
	mux := runtime.NewServeMux()
	return mux, errors.Join(
		traces.RegisterTraceServiceHandler(ctx, mux, conn),
		metrics.RegisterMetricsServiceHandler(ctx, mux, conn),
		logs.RegisterLogsServiceHandler(ctx, mux, conn),
	)
}
