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

func TestServeGRPC(t *testing.T) {
	s := startServers(t)
	for name, test := range map[string]func(*testing.T, *servers){
		"unary":         testUnary,
		"client stream": testClientStream,
		"server stream": testServerStream,
		"bidi stream":   testBidiStream,
	} {
		t.Run(name, func(t *testing.T) { test(t, s.in(t)) })
	}
	s.stop()
}

func testUnary(t *testing.T, s *servers) {
	for _, want := range []string{"", "hello", strings.Repeat("x", 1<<20)} {
		got, err := echopb.NewEchoClient(s.grpc).Unary(s.ctx, &echopb.EchoRequest{Message: want})
		if err != nil || got.GetMessage() != want {
			t.Errorf("%d bytes: got %d bytes, %v, want the same, nil", len(want), len(got.GetMessage()), err)
		}
	}
}

func testClientStream(t *testing.T, s *servers) {
	got, err := sendAll(s, "one", "", "two")
	if err != nil || got.GetMessage() != "onetwo" || got.GetCount() != 3 {
		t.Errorf("got %q of %d, %v, want %q of 3, nil", got.GetMessage(), got.GetCount(), err, "onetwo")
	}
	got, err = sendAll(s)
	if err != nil || got.GetMessage() != "" || got.GetCount() != 0 {
		t.Errorf("no message: got %q of %d, %v, want nothing of 0, nil", got.GetMessage(), got.GetCount(), err)
	}
	all := strings.Repeat("x", clientStreamBytesMax)
	if got, err = sendAll(s, all); err != nil || got.GetMessage() != all {
		t.Errorf("as many bytes as allowed: got %d, %v, want %d, nil", len(got.GetMessage()), err, len(all))
	}
	if _, err = sendAll(s, all, "x"); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one byte more than allowed: got %v, want ResourceExhausted", err)
	}
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

func testServerStream(t *testing.T, s *servers) {
	for _, tt := range []struct {
		req  *echopb.ServerStreamRequest
		want int
	}{
		{&echopb.ServerStreamRequest{Message: "m"}, 1},
		{&echopb.ServerStreamRequest{Message: "m", Count: 1000}, 1000},
		{&echopb.ServerStreamRequest{Message: "m", Count: 3, IntervalMs: 1}, 3},
	} {
		if got, err := receiveAll(s, tt.req); err != nil || got != tt.want {
			t.Errorf("%v: got %d messages, %v, want %d, nil", tt.req, got, err, tt.want)
		}
	}
	if _, err := receiveAll(s, &echopb.ServerStreamRequest{Count: serverStreamCountMax + 1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too many: got %v, want InvalidArgument", err)
	}
}

// receiveAll makes a server-streaming call and counts the messages, all of
// which must be the request's.
func receiveAll(s *servers, req *echopb.ServerStreamRequest) (int, error) {
	call, err := echopb.NewEchoClient(s.grpc).ServerStream(s.ctx, req)
	if err != nil {
		return 0, err
	}
	for n := 0; ; n++ {
		resp, err := call.Recv()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if resp.GetMessage() != req.GetMessage() {
			return n, fmt.Errorf("message %d: got %q, want %q", n, resp.GetMessage(), req.GetMessage())
		}
	}
}

// testBidiStream waits for each answer before it sends the next message.
func testBidiStream(t *testing.T, s *servers) {
	call := s.openCall()
	for i := range 100 {
		want := fmt.Sprint(i)
		if err := call.Send(&echopb.EchoRequest{Message: want}); err != nil {
			t.Fatalf("sending %s: %v", want, err)
		}
		if got, err := call.Recv(); err != nil || got.GetMessage() != want {
			t.Fatalf("got %q, %v, want %q, nil", got.GetMessage(), err, want)
		}
	}
	if err := call.CloseSend(); err != nil {
		t.Fatalf("CloseSend: %v", err)
	}
	if _, err := call.Recv(); err != io.EOF {
		t.Errorf("after the last message: got %v, want EOF", err)
	}
}
