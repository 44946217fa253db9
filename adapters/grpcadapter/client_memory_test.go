package grpcadapter

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestClientStreamMemory: a call is not tried again once the server has answered, so its messages are
// not copied any more. Both ends still allocate memory to decode into.
func TestClientStreamMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they get: run it without -race")
	}
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis)
	s, err := dialClient(t, lis).NewStream(callContext(t), &echo.Streams[0], "/percore.test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	const size, rounds = 10 << 10, 200
	message, out := wrapperspb.Bytes(pattern(size)), new(wrapperspb.BytesValue)
	exchange := func() {
		if err := s.SendMsg(message); err != nil {
			t.Fatal(err)
		}
		if err := s.RecvMsg(out); err != nil {
			t.Fatal(err)
		}
	}
	exchange()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range rounds {
		exchange()
	}
	runtime.ReadMemStats(&after)
	if got := float64(after.TotalAlloc-before.TotalAlloc) / rounds / size; got > 2.6 {
		t.Errorf("a message there and back takes %.2f times its length, want about 2", got)
	}
}

// TestClientMetadataMemory: the metadata of a call is copied once.
func TestClientMetadataMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they get: run it without -race")
	}
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	startOwn(t, lis)
	c := dialClient(t, lis)
	allocs := func(ctx context.Context) float64 {
		return testing.AllocsPerRun(200, func() {
			if err := callEcho(ctx, c, nil); err != nil {
				t.Fatal(err)
			}
		})
	}
	const n = 20
	md := make(metadata.MD)
	for i := range n {
		md.Set("name-"+strconv.Itoa(i), "value")
	}
	plain, with := allocs(callContext(t)), allocs(metadata.NewOutgoingContext(callContext(t), md))
	if more := with - plain; more > n*5.5 { // the server's are 4 for each
		t.Errorf("%d fields of metadata take %v allocations, want 5 for each at most", n, more)
	}
}
