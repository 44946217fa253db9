//go:build !percore_net

package grpcadapter

import (
	"context"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestServerWatchStack: the frames below a handler leave it a stack of 4 KiB while it waits, also if it
// has needed 8 KiB before. The runtime halves a stack of which less than a quarter is used, and counts
// 800 bytes of its own as used.
func TestServerWatchStack(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes frames larger: run it without -race")
	}
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	const streams = 400
	waiting, events := make(chan bool), make(chan int)
	watch := grpc.StreamDesc{StreamName: "Watch", ServerStreams: true, Handler: func(_ any, stream grpc.ServerStream) error {
		useStack(4 << 10)
		waiting <- true
		for {
			select {
			case <-stream.Context().Done():
				return nil
			case n := <-events:
				if err := stream.SendMsg(wrapperspb.Bytes(make([]byte, n))); err != nil {
					return err
				}
			}
		}
	}}
	srv := NewServer()
	serveOn(t, lis, srv, &grpc.ServiceDesc{ServiceName: "Test", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{watch}})
	p := framePeer(t, lis)
	open := func(i int) {
		call(p, uint32(2*i+1), "/Test/Watch").Flush()
		testnet.Receive(t, "the handler", waiting)
	}
	open(0)
	before := stackInUse()
	for i := range streams {
		open(i + 1)
	}
	each := (stackInUse() - before) / streams
	t.Logf("a handler that waits: a stack of %d bytes", each)
	if each > 6<<10 {
		t.Errorf("got a stack of %d bytes for a handler that waits, want 4 KiB", each)
	}
}

// useStack needs n bytes of stack.
//
//go:noinline
func useStack(n int) (sum byte) {
	var frame [256]byte
	if n > 0 {
		frame[n%len(frame)] = useStack(n-len(frame)) + 1
	}
	for _, b := range frame {
		sum += b
	}
	return sum
}

// stackInUse returns how many bytes the stacks have, once a collection has halved those it can.
func stackInUse() int {
	runtime.GC()
	runtime.GC() // which frees those that the first has replaced
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.StackInuse)
}

// TestServerAllocs: a unary call allocates the call, its method's name and the message's bytes. The
// handler has others, and so has the client, which writes frames.
func TestServerAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they get: run it without -race")
	}
	const most = 9 // 8, and one for what the process does besides
	if got := testing.AllocsPerRun(500, unaryFrames(t)); got > most {
		t.Errorf("a unary call takes %v allocations, want %d at most", got, most)
	}
}

// TestClientAllocs: a unary call allocates nothing at the client but the bytes of the message that it
// receives. All else is the server's, which is in the same process: see TestServerAllocs.
func TestClientAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("under the race detector pools drop what they get: run it without -race")
	}
	lis := serveEcho(t)
	c, ctx := dialClient(t, lis), context.Background()
	in, out := wrapperspb.Bytes(pattern(128)), new(wrapperspb.BytesValue)
	const most = 8 // 7, of which the server has 6, and one for what the process does besides
	if got := testing.AllocsPerRun(500, func() {
		if err := c.Invoke(ctx, "/percore.test.Echo/Unary", in, out); err != nil {
			t.Fatal(err)
		}
	}); got > most {
		t.Errorf("a unary call takes %v allocations at both ends, want %d at most", got, most)
	}
}

// BenchmarkServerAllocs counts the allocations of a unary call at the server.
func BenchmarkServerAllocs(b *testing.B) {
	call := unaryFrames(b)
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}

// unaryFrames returns a function that makes a unary call: the client writes frames.
func unaryFrames(t testing.TB) func() {
	lis := serveEcho(t)
	p := framePeer(t, lis).Flush()
	id, answer := uint32(1), make([]byte, 4096)
	return func() {
		p.Headers(id, false, ":method", "POST", ":scheme", "http", ":path", "/percore.test.Echo/Unary", ":authority", "h",
			"content-type", "application/grpc", "te", "trailers", "user-agent", "bench").Data(id, goodMessage, true).Window(0, 8).Flush()
		if _, err := p.Conn.Read(answer); err != nil {
			t.Fatal(err)
		}
		id += 2
	}
}
