package grpcadapter

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestClientStreamMemory: a call is not tried again once the server has answered, so its messages are
// not copied any more. Both ends still allocate memory to decode into.
func TestClientStreamMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they get: run it without -race")
	}
	lis := serveEcho(t)
	s := openChat(t, callContext(t), dialClient(t, lis))
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
	lis := serveEcho(t)
	c := dialClient(t, lis)
	allocs := func(ctx context.Context) float64 {
		return testing.AllocsPerRun(200, func() {
			if err := callUnary(ctx, c, nil); err != nil {
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

// hoarder is a codec that keeps all messages.
type hoarder struct {
	encoding.CodecV2
	all []mem.BufferSlice
}

func (h *hoarder) Unmarshal(data mem.BufferSlice, v any) error {
	data.Ref()
	h.all = append(h.all, data)
	return h.CodecV2.Unmarshal(data, v)
}

// TestClientCodecKeeps: a codec may keep the slice that it gets, which is in memory of the call.
func TestClientCodecKeeps(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis)
	h := &hoarder{CodecV2: encoding.GetCodecV2(proto.Name)}
	for i := range 20 {
		if err := callUnary(callContext(t), c, []byte(strconv.Itoa(i)), grpc.ForceCodecV2(h)); err != nil {
			t.Fatal(err)
		}
		if err := callUnary(callContext(t), c, []byte("another")); err != nil {
			t.Fatal(err)
		}
	}
	for i, data := range h.all {
		got := new(wrapperspb.BytesValue)
		if err := h.CodecV2.Unmarshal(data, got); err != nil || string(got.Value) != strconv.Itoa(i) {
			t.Errorf("message %d: got %q and %v", i, got.Value, err)
		}
		data.Free()
	}
}

// lateCanceller is a stats handler that cancels a call when its outcome is known.
type lateCanceller struct{ noStats }

type cancelKey struct{}

// HandleRPC implements [stats.Handler].
func (lateCanceller) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.InTrailer); ok {
		if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
			cancel()
		}
	}
}

// TestClientLateCancel: a context that ends with its call, and so ends the call's stream on another
// goroutine, ends no other call.
func TestClientLateCancel(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	c := dialClient(t, lis, WithStatsHandler(lateCanceller{}))
	for range 200 {
		ctx, cancel := context.WithCancel(callContext(t))
		if err := callUnary(context.WithValue(ctx, cancelKey{}, cancel), c, nil); err != nil {
			t.Fatal(err)
		}
		if err := callUnary(callContext(t), c, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClientMemoryApart: calls that end in all ways at once, some while the answer comes, get their own
// answers, though they use one another's memory.
func TestClientMemoryApart(t *testing.T) {
	testnet.NoLeaks(t)
	lis := serveEcho(t)
	clients := []*Client{dialClient(t, lis), dialClient(t, lis)}
	parent := callContext(t)
	var answered atomic.Int64
	var callers sync.WaitGroup
	for i := range 32 {
		callers.Go(func() {
			for n := range 50 {
				ctx, cancel := context.WithCancel(parent)
				var canceller sync.WaitGroup
				if n%2 == 1 {
					canceller.Go(func() {
						for range n % 8 {
							runtime.Gosched()
						}
						cancel()
					})
				}
				var trailer metadata.MD
				err := callUnary(ctx, clients[(i+n)%2], pattern(i*n), grpc.Trailer(&trailer))
				switch {
				case err == nil:
					answered.Add(1)
				case n%2 == 0 || status.Code(err) != codes.Canceled:
					t.Errorf("call %d of caller %d: %v", n, i, err)
				}
				canceller.Wait()
				cancel()
			}
		})
	}
	callers.Wait()
	if n := answered.Load(); n < 32*25 {
		t.Errorf("%d calls were answered, want half of them at least", n)
	}
}
