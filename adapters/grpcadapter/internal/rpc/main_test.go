package rpc

import (
	"context"
	"testing"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestMethods lists all methods of the wrapper that credentials get.
func TestMethods(t *testing.T) {
	testnet.CheckMethods[bareConn](t, testnet.MethodTable{
		Own: "NetConn",
		Promoted: map[string]string{
			"nothing is held back": "Close LocalAddr Read RemoteAddr SetDeadline SetReadDeadline SetWriteDeadline Write",
		},
	})
}

// TestSize: a call is in the allocator's class of 576 bytes, of which the allocator needs 8 itself. A
// watch holds one.
func TestSize(t *testing.T) {
	const most = 568
	if got := unsafe.Sizeof(call{}); unsafe.Sizeof(uintptr(0)) == 8 && got > most {
		t.Errorf("a call takes %d bytes, want %d at most", got, most)
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
			conn: &conn{server: new(Server)}, parent: context.WithValue(context.Background(), testKey("k"), "parent"),
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
	c := &call{conn: &conn{server: new(Server)}, parent: context.Background()}
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
