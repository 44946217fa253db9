package conformance

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestGRPCSoak is for the race detector. Thousands of streams come and go on a few connections:
// cancelled at any point, cut by deadlines, ended normally or left until the connection ends. No
// stream may see another stream's bytes, and nothing may be left. (gRPC leaves the unread bytes of
// a cancelled stream to the garbage collector instead of giving them back; but no object may hold
// them any longer.)
func TestGRPCSoak(t *testing.T) {
	connections, callers, streams := 4, 16, 40
	if testing.Short() {
		streams = 5
	}
	before := percore.ReadStats().Pool.BuffersInUse
	onEachGRPCArm(t, "streams", func(t *testing.T, arm grpcArm) {
		r := startGRPC(t, arm, rigOptions{kind: testnet.TCP4})
		var wg sync.WaitGroup
		for c := range connections {
			cc, err := grpc.NewClient(grpcTarget(r.ln.Addr()), append(arm.client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cc.Close() })
			for caller := range callers {
				wg.Go(func() {
					for i := range streams {
						if err := soakStream(cc, c, caller, i); err != nil {
							t.Errorf("connection %d, caller %d, stream %d: %v", c, caller, i, err)
							return
						}
					}
				})
			}
		}
		wg.Wait()
		if err := echoUnary(callContext(t), r.client, pattern(100_000)); err != nil {
			t.Errorf("a call after all that: %v", err)
		}
	})
	testnet.Eventually(t, "all buffers of the pool being back or garbage", func() bool {
		runtime.GC()
		return percore.ReadStats().Pool.BuffersInUse <= before // fewer if there was garbage then
	})
}

// soakStream opens a stream and ends it in one of several ways.
func soakStream(cc *grpc.ClientConn, c, caller, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), testnet.HangTimeout)
	defer cancel()
	way := (caller + i) % 6
	if way == 5 { // a deadline that passes at some point of the conversation
		ctx, cancel = context.WithTimeout(ctx, time.Duration(i%8)*time.Millisecond)
		defer cancel()
	}
	stream, err := chat(ctx, cc)
	for n := 0; n < 1+i%4 && err == nil; n++ {
		message := []byte(strings.Repeat(fmt.Sprintf("%d/%d/%d/%d ", c, caller, i, n), 1+i*37%2000))
		if err = stream.SendMsg(wrapperspb.Bytes(message)); err != nil {
			break
		}
		if way == 1 && n == i%3 {
			cancel() // before the answer
		}
		var reply wrapperspb.BytesValue
		if err = stream.RecvMsg(&reply); err == nil && string(reply.Value) != string(message) {
			return fmt.Errorf("message %d: got %s, want %s", n, digest(reply.Value), digest(message))
		}
		if way == 2 && n == i%3 {
			cancel() // after it
		}
	}
	switch code := status.Code(err); {
	case way == 1 || way == 2:
		if err == nil || err == io.EOF || code == codes.Canceled {
			return nil
		}
	case way == 5:
		if err == nil || err == io.EOF || code == codes.DeadlineExceeded {
			return nil
		}
	case err == nil && way == 3:
		return nil // left open, until cancel
	case err == nil:
		if err = stream.CloseSend(); err == nil {
			err = stream.RecvMsg(new(wrapperspb.BytesValue))
		}
		if err == io.EOF {
			return nil
		}
	}
	return fmt.Errorf("way %d: got %w", way, err)
}
