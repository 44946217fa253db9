package grpcinterop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/percore/percore/internal/testnet"
)

// echoServer returns what it gets. A request that wants a status waits for its end instead.
type echoServer struct {
	testgrpc.UnimplementedTestServiceServer
	waits chan error
}

func (s *echoServer) UnaryCall(ctx context.Context, r *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if r.ResponseStatus != nil {
		<-ctx.Done()
		s.waits <- ctx.Err()
		return nil, ctx.Err()
	}
	return &testgrpc.SimpleResponse{Payload: r.Payload}, nil
}

func (s *echoServer) FullDuplexCall(stream grpc.BidiStreamingServer[testgrpc.StreamingOutputCallRequest, testgrpc.StreamingOutputCallResponse]) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		if err := stream.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.Payload}); err != nil {
			return err
		}
	}
}

// TestHandlerLoad: more calls at once than streams may be open, messages larger than the windows,
// deadlines and cancellations, all on one connection to a server that is a handler of HTTP/2.
func TestHandlerLoad(t *testing.T) {
	const largest = 4 << 20
	for _, side := range handlers {
		t.Run(side.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := testnet.Listen(t, side.listen, testnet.TCP4)
			server := grpc.NewServer(grpc.MaxRecvMsgSize(largest+1000), grpc.MaxSendMsgSize(largest+1000))
			echo := &echoServer{waits: make(chan error, 1000)}
			testgrpc.RegisterTestServiceServer(server, echo)
			serveHandler(t, side, ln, adapted{server, nil}, nil)
			cc, err := grpc.NewClient(target(ln.Addr()), grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(largest+1000)))
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			client := testgrpc.NewTestServiceClient(cc)
			ctx, cancel := context.WithTimeout(t.Context(), 2*testnet.HangTimeout)
			defer cancel()
			if err := call(ctx, client, 10); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 360 {
				switch i % 3 {
				case 0, 1:
					wg.Go(func() {
						if err := call(ctx, client, rand.IntN(100_000)); err != nil {
							t.Errorf("call %d: %v", i, err)
						}
					})
				case 2:
					wg.Go(func() {
						if err := endEarly(ctx, client, echo, i%2 == 0); err != nil {
							t.Errorf("call %d: %v", i, err)
						}
					})
				}
			}
			wg.Go(func() {
				if err := call(ctx, client, largest); err != nil {
					t.Errorf("a large message: %v", err)
				}
			})
			wg.Go(func() {
				if err := converse(ctx, client); err != nil {
					t.Errorf("a stream: %v", err)
				}
			})
			wg.Wait()
			if err := call(ctx, client, 10); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// call sends a message of n bytes, and expects it back.
func call(ctx context.Context, client testgrpc.TestServiceClient, n int) error {
	body := bytes.Repeat([]byte{byte(n)}, n)
	got, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: body}})
	if err == nil && !bytes.Equal(got.GetPayload().GetBody(), body) {
		err = fmt.Errorf("got %d bytes, want %d", len(got.GetPayload().GetBody()), n)
	}
	return err
}

// endEarly makes a call that is never answered, and ends it by a deadline or by cancelling it.
func endEarly(ctx context.Context, client testgrpc.TestServiceClient, s *echoServer, deadline bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	want := codes.Canceled
	if deadline {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(50))*time.Millisecond)
		defer cancel()
		want = codes.DeadlineExceeded
	} else {
		time.AfterFunc(time.Duration(rand.IntN(50))*time.Millisecond, cancel)
	}
	_, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{ResponseStatus: &testgrpc.EchoStatus{}})
	if status.Code(err) != want {
		return fmt.Errorf("got %v, want %v", err, want)
	}
	select {
	case err := <-s.waits:
		if !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the handler's context ended with %v", err)
		}
	default: // another call of this kind, or the client had not sent it yet
	}
	return nil
}

// converse waits for each message before it sends the next.
func converse(ctx context.Context, client testgrpc.TestServiceClient) error {
	stream, err := client.FullDuplexCall(ctx)
	if err != nil {
		return err
	}
	for i := range 200 {
		body := bytes.Repeat([]byte{byte(i)}, i*100)
		if err := stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: &testgrpc.Payload{Body: body}}); err != nil {
			return err
		}
		got, err := stream.Recv()
		if err != nil || !bytes.Equal(got.GetPayload().GetBody(), body) {
			return fmt.Errorf("message %d: got %d bytes, %v", i, len(got.GetPayload().GetBody()), err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return fmt.Errorf("got %v, want the end", err)
	}
	return nil
}
