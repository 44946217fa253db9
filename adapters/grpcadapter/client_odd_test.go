package grpcadapter

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// TestClientOdd makes odd calls to a server of grpc-go's with both clients, which must get the same, and
// so must the server. Its cases are from grpc-go's end-to-end tests: see TestGRPCOwnTests.
func TestClientOdd(t *testing.T) {
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, net.Listen, testnet.TCP4)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, ss grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(ss.Context())
		answer := wrapperspb.String(fmt.Sprint("authority ", md[":authority"]))
		for {
			if err := ss.RecvMsg(new(wrapperspb.StringValue)); err == io.EOF {
				return ss.SendMsg(answer)
			} else if err != nil {
				return err
			}
		}
	}))
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", lis.Addr().String())
	}
	open := func(ctx context.Context, cc grpc.ClientConnInterface, desc *grpc.StreamDesc, opts ...grpc.CallOption) grpc.ClientStream {
		s, err := cc.NewStream(ctx, desc, "/a/b", opts...)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	invoke := func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
		answer := new(wrapperspb.StringValue)
		err := cc.Invoke(ctx, "/a/b", wrapperspb.String("x"), answer)
		return append(all, fmt.Sprint(answer.Value, err))
	}
	for _, test := range []struct {
		name, target string
		calls        func(ctx context.Context, cc grpc.ClientConnInterface) []string
	}{
		{"an empty authority", "passthrough:///", invoke},
		{"deadlines that are far away", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			for _, d := range []time.Duration{math.MaxInt64, math.MaxInt64 - time.Hour, 1e8 * time.Second, 99_999_999 * time.Minute} {
				ctx, cancel := context.WithTimeout(ctx, d)
				all = append(all, invoke(ctx, cc)...)
				cancel()
			}
			return all
		}},
		{"limits below 0", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			for _, opt := range []grpc.CallOption{grpc.MaxCallRecvMsgSize(-1), grpc.MaxCallSendMsgSize(-1)} {
				err := cc.Invoke(ctx, "/a/b", wrapperspb.String("x"), new(wrapperspb.StringValue), opt)
				all = append(all, fmt.Sprint(err))
			}
			return all
		}},
		{"more calls of RecvMsg than answers", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true})
			all = append(all, fmt.Sprint(s.SendMsg(wrapperspb.String("x")), s.CloseSend()))
			for range 3 {
				all = append(all, fmt.Sprint(s.RecvMsg(new(wrapperspb.StringValue))))
			}
			return all
		}},
		{"nil, which is an empty message", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			answer := wrapperspb.String("x")
			all = append(all, fmt.Sprint(cc.Invoke(ctx, "/a/b", nil, answer), answer.Value))
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true})
			return append(all, fmt.Sprint(s.SendMsg(nil), s.CloseSend(), s.RecvMsg(answer), answer.Value))
		}},
		{"trailers of calls that have none", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			var trailer metadata.MD
			err := cc.Invoke(ctx, "/a/b", wrapperspb.String("x"), new(wrapperspb.StringValue), grpc.Trailer(&trailer))
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true})
			defer s.CloseSend()
			return append(all, fmt.Sprint(err, trailer == nil, s.Trailer() == nil)) // interceptors may add to them
		}},
		{"a message that is no message", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true})
			all = append(all, fmt.Sprint(s.SendMsg(wrapperspb.String("x")), s.SendMsg("no message"), s.CloseSend()))
			return append(all, fmt.Sprint(s.RecvMsg(new(wrapperspb.StringValue))))
		}},
		{"a message that is too long while RecvMsg waits", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, grpc.MaxCallSendMsgSize(1))
			received := make(chan error, 1)
			go func() { received <- s.RecvMsg(new(wrapperspb.StringValue)) }()
			all = append(all, fmt.Sprint(s.SendMsg(wrapperspb.String("x"))))
			return append(all, fmt.Sprint(<-received))
		}},
		{"a stream without a receiver when the client is closed", "passthrough:///server", func(ctx context.Context, cc grpc.ClientConnInterface) (all []string) {
			outcome := make(chan error, 1)
			s := open(ctx, cc, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, grpc.OnFinish(func(err error) { outcome <- err }))
			all = append(all, fmt.Sprint(cc.(io.Closer).Close()))
			all = append(all, fmt.Sprint(testnet.Receive(t, "the outcome", outcome)))
			<-s.Context().Done()
			return append(all, fmt.Sprint(s.SendMsg(wrapperspb.String("x")), s.CloseSend()))
		}},
	} {
		theirs := dialTarget(t, test.target, grpc.WithContextDialer(dial))
		ours := newTestClient(t, test.target, WithTransportCredentials(insecure.NewCredentials()), WithContextDialer(dial))
		want, got := test.calls(callContext(t), theirs), test.calls(callContext(t), ours)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q as with grpc-go", test.name, got, want)
		}
	}
}

// TestClientCancelsWhileOpening: a context may end while its stream is being opened. The race detector
// looks on.
func TestClientCancelsWhileOpening(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis)
	for range 100 {
		ctx, cancel := context.WithCancel(callContext(t))
		creds := credsFunc(func(context.Context) (map[string]string, error) { cancel(); return nil, nil })
		outcome := make(chan error, 1)
		s, err := tryChat(ctx, c, grpc.PerRPCCredentials(creds), grpc.OnFinish(func(err error) { outcome <- err }))
		if err == nil {
			<-s.Context().Done()
		}
		if err := <-outcome; status.Code(err) != codes.Canceled {
			t.Fatalf("got %v, want Canceled", err)
		}
	}
}
