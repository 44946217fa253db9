package grpcadapter

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/internal/testnet"
)

// TestMetrics: percore.ReadStats returns this package's metrics.
func TestMetrics(t *testing.T) {
	testnet.NoLeaks(t)
	read := func(adapter string) map[string]float64 {
		values := make(map[string]float64)
		for _, a := range percore.ReadStats().Adapters {
			if a.Adapter == adapter {
				for _, f := range a.Metrics {
					values[f.Name+f.Of] = f.Value
				}
			}
		}
		return values
	}
	before := read("grpc")
	foreign := testnet.Listen(t, net.Listen, testnet.TCP4)
	startOwn(t, foreign)
	if err := callUnary(callContext(t), dialClient(t, foreign), nil); err != nil {
		t.Fatal(err)
	}
	after := read("grpc")
	if len(after) != 3+4+17+2 || after["connections_totalforeign"] < before["connections_totalforeign"]+1 {
		t.Errorf("got %v, then %v with one connection more, want it counted", before, after)
	}

	lis := serveEcho(t)
	before = read("grpc_client")
	if err := callUnary(callContext(t), dialClient(t, lis), nil); err != nil {
		t.Fatal(err)
	}
	after = read("grpc_client")
	for _, name := range []string{"started_calls_total", "calls_totalOK", "messages_totalsent", "messages_totalreceived"} {
		if after[name] < before[name]+1 {
			t.Errorf("%s: got %v, then %v with one call more, want it counted", name, before[name], after[name])
		}
	}
}

// ending is a service whose streams end as their metadata says.
var ending = grpc.ServiceDesc{ServiceName: "percore.test.Ending", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
	StreamName: "End", ServerStreams: true, ClientStreams: true,
	Handler: func(_ any, stream grpc.ServerStream) error {
		if err := stream.SendMsg(new(wrapperspb.BytesValue)); err != nil {
			return err
		}
		switch metadata.ValueFromIncomingContext(stream.Context(), "how")[0] {
		case "wait":
			<-stream.Context().Done()
			return stream.Context().Err()
		case "odd":
			return status.Error(codes.Code(99), "no code of gRPC's")
		case "plain":
			return errors.New("a plain error")
		case "exit":
			runtime.Goexit()
		}
		return status.Error(codes.NotFound, "")
	},
}}}

// TestServerStats: each call is counted once by what it ends with, and messages are.
func TestServerStats(t *testing.T) {
	testnet.NoLeaks(t)
	before := rpc.ProcessStats()
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	srv := NewServer()
	serveOn(t, lis, srv, &echo, &ending)
	cc := dialServer(t, lis)
	want := map[codes.Code]uint64{}
	for range 3 {
		if err := callUnary(callContext(t), cc, pattern(10)); err != nil {
			t.Fatal(err)
		}
		want[codes.OK]++
	}
	open := func(ctx context.Context, how string) grpc.ClientStream {
		stream, err := cc.NewStream(metadata.AppendToOutgoingContext(ctx, "how", how), &ending.Streams[0], "/percore.test.Ending/End")
		if err == nil {
			err = stream.RecvMsg(new(wrapperspb.BytesValue))
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	for how, code := range map[string]codes.Code{"": codes.NotFound, "odd": codes.Unknown, "plain": codes.Unknown, "exit": codes.Internal} {
		_ = open(callContext(t), how).RecvMsg(new(wrapperspb.BytesValue))
		want[code]++
	}
	for _, path := range []string{"/none/None", "none"} {
		_ = cc.Invoke(callContext(t), path, new(wrapperspb.BytesValue), new(wrapperspb.BytesValue))
		want[codes.Unimplemented]++
	}
	ctx, cancel := context.WithCancel(callContext(t))
	open(ctx, "wait")
	testnet.Eventually(t, "one call that waits", func() bool { // the others' answers may be there before their ends
		s := srv.Stats()
		return s.Calls == 1 && s.HTTP2.Conns == 1 && s.HTTP2.Streams == 1
	})
	cancel()
	want[codes.Canceled]++
	total := uint64(0)
	for _, n := range want {
		total += n
	}
	var got Stats
	testnet.Eventually(t, "the end of all calls", func() bool {
		got = srv.Stats()
		return got.Calls == 0 && got.Started == total
	})
	for code, n := range got.Ended {
		if n != want[code] {
			t.Errorf("%v: %d calls, want %d", code, n, want[code])
		}
	}
	if got.Refused != 2 || got.Received != 3 || got.Sent != 3+5 {
		t.Errorf("got %d refused, %d received, %d sent", got.Refused, got.Received, got.Sent)
	}
	after := rpc.ProcessStats()
	if after.Started < before.Started+total || len(after.Ended) != 17 {
		t.Errorf("the process has %+v, then %+v", before, after)
	}
}
