package rpc

import (
	"context"
	"math/bits"
	"testing"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestSize: a call is in the allocator's class of 576 bytes, of which the allocator needs 8 itself,
// and a connection in that of 80. A watch holds both, an idle connection the second.
func TestSize(t *testing.T) {
	const callMost, connMost = 568, 80
	if unsafe.Sizeof(uintptr(0)) != 8 {
		return
	}
	if got := unsafe.Sizeof(call{}); got > callMost {
		t.Errorf("a call takes %d bytes, want %d at most", got, callMost)
	}
	if got := unsafe.Sizeof(conn{}); got > connMost {
		t.Errorf("a connection takes %d bytes, want %d at most", got, connMost)
	}
}

// TestBufferBytes: the memory of a message that has come in part is bounded, grows with each step, and
// few bytes are copied on the way.
func TestBufferBytes(t *testing.T) {
	for _, n := range []int{1025, 16 << 10, 16<<10 + 1, 64<<10 + 5, 68_000, 280_000, 1<<20 + 5, 1_100_000, 4 << 20, 1<<31 - 1} {
		for _, part := range []int{0, 1, 1000, 16 << 10, 100_000} {
			copied := int64(0)
			for have := 0; have < n; {
				come := min(n, have+part)
				next := bufferBytes(n, come)
				class := int64(1) << bits.Len(uint(next-1))
				if class > max(firstBytes, 2*growth*int64(come)+growth*int64(come)/4) {
					t.Errorf("%d bytes of %d have come: got memory of %d, in a class of %d", come, n, next, class)
				}
				if next <= have {
					t.Fatalf("%d bytes of %d have come: got memory of %d, which is no more than before", come, n, next)
				}
				copied += int64(have)
				have = next
			}
			if copied > int64(n/3+16) {
				t.Errorf("a message of %d bytes in parts of %d: %d were copied, want %d at most", n, part, copied, n/3+16)
			}
		}
	}
}

// sentMessages are what a stream was given to send.
type sentMessages []h2.Message

func (s *sentMessages) Send(m h2.Message) error {
	*s = append(*s, m)
	return nil
}

// TestPieces: the pieces of a message are sent in their order, and all but the last wait for the next.
func TestPieces(t *testing.T) {
	for _, hold := range []bool{false, true} {
		for _, p := range []pieces{
			{}, {first: []byte("head")}, {first: []byte("head"), rest: []byte(" rest")},
			{first: []byte("head"), rest: []byte(" rest"), more: mem.BufferSlice{mem.SliceBuffer(" of"), mem.SliceBuffer(" three")}},
		} {
			var sent sentMessages
			if err := p.send(&sent, h2.Message{Status: 200, End: true, Hold: hold}); err != nil {
				t.Error(err)
			}
			var body []byte
			for i, m := range sent {
				last := i == len(sent)-1
				if body = append(body, m.Body...); m.End != last || m.Hold != (!last || hold && i == 0) || (m.Status != 0) != (i == 0) {
					t.Errorf("message %d of %d: %+v", i, len(sent), m)
				}
			}
			if whole := p.join(); string(body) != string(whole.first) {
				t.Errorf("got %q, want %q", body, whole.first)
			}
		}
	}
}

// testKey is a key of a context's value.
type testKey string

// TestContextKeys: a call's context has the metadata and the stream, with the keys of this version
// of grpc-go, which are known, and without.
func TestContextKeys(t *testing.T) {
	if keys.metadata == nil || keys.stream == nil {
		t.Errorf("got the keys %v: calls take two contexts more", keys)
	}
	known := keys
	defer func() { keys = known }()
	for _, keys = range []contextKeys{known, {}, {metadata: known.metadata}, {stream: known.stream}} {
		c := &call{
			conn:   &conn{server: new(Server), ctx: context.WithValue(context.Background(), testKey("k"), "parent")},
			method: "/s/m", fields: []field{{h2.MakeField("k", "").Name, "v"}},
		}
		tagged := false
		c.ctx = c.context(func(ctx context.Context) context.Context {
			md, ok := metadata.FromIncomingContext(ctx)
			tagged = ok && len(md) == 1
			return context.WithValue(ctx, testKey("tag"), "yes")
		})
		md, ok := metadata.FromIncomingContext(c.ctx)
		if !ok || len(md["k"]) != 1 || md["k"][0] != "v" || !tagged {
			t.Errorf("%v: got the metadata %v", keys, md)
		}
		if method, ok := grpc.Method(c.ctx); !ok || method != "/s/m" {
			t.Errorf("%v: got the method %q", keys, method)
		}
		if c.ctx.Value(testKey("k")) != "parent" || c.ctx.Value(testKey("tag")) != "yes" || c.ctx.Value(nil) != nil {
			t.Errorf("%v: the values of other contexts are lost", keys)
		}
	}
}

// TestContextEnd: contexts that derive from a call's end with it, without a goroutine of their own.
func TestContextEnd(t *testing.T) {
	testnet.NoLeaks(t)
	c := &call{conn: &conn{server: new(Server), ctx: context.Background()}}
	ctx := c.context(nil)
	derived, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := context.AfterFunc(ctx, func() { t.Error("a function was called that was stopped") })
	if !stopped() || ctx.Err() != nil || derived.Err() != nil {
		t.Error("the context has ended before the call")
	}
	called := make(chan bool, 1)
	context.AfterFunc(ctx, func() { called <- true })
	c.end(codes.DeadlineExceeded, context.DeadlineExceeded, false)
	c.end(codes.Canceled, context.Canceled, false)
	testnet.Receive(t, "the derived context's end", derived.Done())
	testnet.Receive(t, "the call", called)
	testnet.Receive(t, "the end", ctx.Done())
	if ctx.Err() != context.DeadlineExceeded || derived.Err() != context.DeadlineExceeded {
		t.Errorf("got %v and %v", ctx.Err(), derived.Err())
	}
	late := make(chan bool, 1)
	if stop := context.AfterFunc(ctx, func() { late <- true }); stop() {
		t.Error("a function of a context that had ended was stopped")
	}
	testnet.Receive(t, "the late call", late)
}
