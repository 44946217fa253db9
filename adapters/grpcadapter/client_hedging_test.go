package grpcadapter

import (
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/percore/percore/internal/testnet"
)

// TestClientHedging: a hedgingPolicy has no effect, as in grpc-go, which doesn't know it. There is one
// attempt, also beside a retryPolicy of another method.
func TestClientHedging(t *testing.T) {
	testnet.NoLeaks(t)
	const policy = `{"methodConfig":[{"name":[{"service":"percore.test.Echo","method":"Chat"}],"hedgingPolicy":{"maxAttempts":3,
		"hedgingDelay":"0.001s","nonFatalStatusCodes":["UNAVAILABLE"]}},{"name":[{}],"retryPolicy":{"maxAttempts":3,
		"initialBackoff":"0.001s","maxBackoff":"0.01s","backoffMultiplier":2,"retryableStatusCodes":["UNAVAILABLE"]}}]}`
	run := func(make func(lis net.Listener) grpc.ClientConnInterface) string {
		lis := serveEcho(t, ChainStreamInterceptor(failing(1, codes.Unavailable, false)))
		ctx := metadata.AppendToOutgoingContext(callContext(t), "id", "x")
		s, err := make(lis).NewStream(ctx, &echo.Streams[0], "/percore.test.Echo/Chat")
		if err != nil {
			return fmt.Sprint("NewStream: ", err)
		}
		return fmt.Sprint(s.RecvMsg(nil))
	}
	want := run(func(lis net.Listener) grpc.ClientConnInterface {
		return dialServer(t, lis, grpc.WithDefaultServiceConfig(policy))
	})
	got := run(func(lis net.Listener) grpc.ClientConnInterface {
		return dialClient(t, lis, WithDefaultServiceConfig(policy))
	})
	if got != want || want != "rpc error: code = Unavailable desc = attempt 1, of which the client says []" {
		t.Errorf("got %s, want grpc-go's %s, of the first attempt", got, want)
	}
}
