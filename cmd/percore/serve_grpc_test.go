package main

import (
	"fmt"
	"strings"
	"testing"

	pb "google.golang.org/grpc/interop/grpc_testing"
)

// TestServeGRPC calls each method.
func TestServeGRPC(t *testing.T) {
	s := startServers(t)
	long := strings.Repeat("x", 1<<20)
	if got, err := s.callUnary(long); err != nil || got != long {
		t.Errorf("unary: got %d bytes, %v", len(got), err)
	}
	call := s.openCall()
	for i := range 100 { // each waits for the answer before
		s.talk(call, fmt.Sprint(i))
	}
	s.endCall(call)
	s.stop()
}

func request(text string) *pb.SimpleRequest {
	return &pb.SimpleRequest{Payload: &pb.Payload{Body: []byte(text)}}
}

// callUnary sends a text in a unary call, and returns what comes back.
func (s *servers) callUnary(text string) (string, error) {
	got, err := pb.NewBenchmarkServiceClient(s.grpc).UnaryCall(s.ctx, request(text))
	return string(got.GetPayload().GetBody()), err
}
