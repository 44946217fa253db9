package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/cmd/percore/internal/echopb"
)

// TestServeGRPC calls each method, within its limits and beyond.
func TestServeGRPC(t *testing.T) {
	s := startServers(t)
	client := echopb.NewEchoClient(s.grpc)
	long := strings.Repeat("x", clientStreamBytesMax)
	if got, err := client.Unary(s.ctx, &echopb.EchoRequest{Message: long}); err != nil || got.GetMessage() != long {
		t.Errorf("unary: got %d bytes, %v", len(got.GetMessage()), err)
	}
	for _, c := range []struct {
		messages []string
		want     string
		code     codes.Code
	}{
		{nil, "", codes.OK},
		{[]string{"one", "", "two"}, "onetwo", codes.OK},
		{[]string{long}, long, codes.OK},
		{[]string{long, "x"}, "", codes.ResourceExhausted},
	} {
		got, err := sendAll(s, c.messages...)
		if status.Code(err) != c.code || got.GetMessage() != c.want || err == nil && got.GetCount() != uint64(len(c.messages)) {
			t.Errorf("client stream: got %d bytes of %d messages, %v, want %d bytes and %v", len(got.GetMessage()), got.GetCount(), err, len(c.want), c.code)
		}
	}
	for _, c := range []struct {
		req  *echopb.ServerStreamRequest
		want int
		code codes.Code
	}{
		{&echopb.ServerStreamRequest{Message: "m"}, 1, codes.OK},
		{&echopb.ServerStreamRequest{Message: "m", Count: 1000}, 1000, codes.OK},
		{&echopb.ServerStreamRequest{Message: "m", Count: 3, IntervalMs: 1}, 3, codes.OK},
		{&echopb.ServerStreamRequest{Count: serverStreamCountMax + 1}, 0, codes.InvalidArgument},
	} {
		if got, err := receiveAll(s, c.req); status.Code(err) != c.code || got != c.want {
			t.Errorf("server stream, %v: got %d messages, %v, want %d and %v", c.req, got, err, c.want, c.code)
		}
	}
	call := s.openCall()
	for i := range 100 { // each waits for the answer before
		s.talk(call, fmt.Sprint(i))
	}
	s.endCall(call)
	s.stop()
}

// sendAll makes a client-streaming call.
func sendAll(s *servers, messages ...string) (*echopb.ClientStreamResponse, error) {
	call, err := echopb.NewEchoClient(s.grpc).ClientStream(s.ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		// io.EOF says that the server has ended the call; CloseAndRecv, why.
		if err := call.Send(&echopb.EchoRequest{Message: m}); err != nil && err != io.EOF {
			return nil, err
		}
	}
	return call.CloseAndRecv()
}

// receiveAll makes a server-streaming call and counts the messages, all of which must be the request's.
func receiveAll(s *servers, req *echopb.ServerStreamRequest) (n int, err error) {
	call, err := echopb.NewEchoClient(s.grpc).ServerStream(s.ctx, req)
	for ; err == nil; n++ {
		resp, err := call.Recv()
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case resp.GetMessage() != req.GetMessage():
			return n, fmt.Errorf("message %d: got %q, want %q", n, resp.GetMessage(), req.GetMessage())
		}
	}
	return n, err
}
