package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// collector says how many spans it has got. It takes them from "me" only.
type collector struct {
	traces.UnimplementedTraceServiceServer
}

func (collector) Export(ctx context.Context, r *traces.ExportTraceServiceRequest) (*traces.ExportTraceServiceResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	if from := md.Get("authorization"); len(from) != 1 || from[0] != "me" {
		return nil, status.Errorf(codes.PermissionDenied, "not for %q", from)
	}
	spans := 0
	for _, of := range r.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			spans += len(scope.Spans)
		}
	}
	return &traces.ExportTraceServiceResponse{PartialSuccess: &traces.ExportTracePartialSuccess{RejectedSpans: int64(spans)}}, nil
}

// TestServe: requests in JSON become calls, whose answers and errors come back in JSON. A service that
// the server doesn't have, and a path that there isn't, are errors, too.
func TestServe(t *testing.T) {
	backend := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := grpcadapter.NewServer()
	traces.RegisterTraceServiceServer(srv, collector{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(backend) }()
	ln := testnet.Listen(t, percore.Listen, testnet.TCP4)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, ln, backend.Addr().String()) }()

	client := &http.Client{Transport: new(http.Transport)}
	const span = `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"a"},{"name":"b"}]}]}]}`
	for _, test := range []struct {
		path, who, body, want string
	}{
		{"/v1/traces", "me", span, `200 {"partialSuccess":{"rejectedSpans":"2","errorMessage":""}}`},
		{"/v1/traces", "you", span, `403 {"code":7,"message":"not for [\"you\"]","details":[]}`},
		{"/v1/traces", "me", "{", `400 {"code":3,"message":"unexpected EOF","details":[]}`},
		{"/v1/logs", "me", "{}", `501 {"code":12,"message":"unknown service opentelemetry.proto.collector.logs.v1.LogsService","details":[]}`},
		{"/v1/metrics", "me", "{}", `501 {"code":12,"message":"unknown service opentelemetry.proto.collector.metrics.v1.MetricsService","details":[]}`},
		{"/v1/x", "me", "{}", `404 {"code":5,"message":"Not Found","details":[]}`},
	} {
		req, err := http.NewRequest(http.MethodPost, "http://"+ln.Addr().String()+test.path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", test.who)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		got := strings.ReplaceAll(fmt.Sprintf("%d %s", resp.StatusCode, body), `, "`, `,"`) // protojson has spaces by chance
		if got != test.want || err != nil {
			t.Errorf("%s: got %s, error %v, want %s", test.path, got, err, test.want)
		}
	}
	client.CloseIdleConnections()
	stop()
	if err := testnet.Receive(t, "the gateway's end", done); err != nil {
		t.Errorf("got %v, want no error", err)
	}
	srv.Stop()
	if err := testnet.Receive(t, "the server's end", served); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}
