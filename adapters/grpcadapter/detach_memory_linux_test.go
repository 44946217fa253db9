//go:build !percore_net

package grpcadapter

import (
	"runtime"
	"testing"

	"google.golang.org/grpc"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/race"
	"github.com/percore/percore/internal/testnet"
)

// TestDetachMemory measures the memory of a watch that waits, and counts goroutines. The client writes
// frames, on one connection.
func TestDetachMemory(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector needs memory of its own: run it without -race")
	}
	testnet.NoLeaks(t)
	lis := testnet.Listen(t, percore.Listen, testnet.TCP4)
	w := newWatches(t)
	const n, few, most = 10_000, 300, 900
	streams := make(chan *Stream, n+few)
	w.do = func(_ string, stream grpc.ServerStream) error {
		return Detach(stream, func(s *Stream) { streams <- s })
	}
	srv := startWatches(t, lis, w)
	p := framePeer(t, lis)
	id := uint32(1)
	open := func(n int) {
		for range n {
			call(p, id, "/Watches/Watch").Data(id, goodMessage, true)
			id += 2
		}
		p.Flush()
		p.Out = nil
	}
	await := func(n int) {
		testnet.Eventually(t, "the calls being detached", func() bool { return srv.Stats().Detached == n })
	}
	open(few)
	await(few)
	goroutines, before := runtime.NumGoroutine(), testnet.HeapBytes()
	open(n)
	await(few + n)
	testnet.Eventually(t, "as few goroutines as with few calls", func() bool { return runtime.NumGoroutine() <= goroutines+2 })
	each := (testnet.HeapBytes() - before) / n
	t.Logf("%d bytes of heap per watch", each)
	if each > most {
		t.Errorf("got %d bytes of heap per watch, want %d at most", each, most)
	}
	for range few + n {
		(<-streams).Close()
	}
	await(0)
}
