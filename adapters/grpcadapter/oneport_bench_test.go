package grpcadapter

import (
	"net"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// BenchmarkOnePort makes unary calls on one connection, 64 at a time: to a Server's own port, and to
// ports of HTTP, where they come by streams or through net/http's types. The client takes most of the
// time; compare with what "own" takes.
func BenchmarkOnePort(b *testing.B) {
	calls := func(b *testing.B, listen testnet.ListenFunc, start func(net.Listener)) {
		lis := testnet.Listen(b, listen, testnet.TCP4)
		start(lis)
		cc, ctx, message := dialServer(b, lis), callContext(b), pattern(128)
		b.ReportAllocs()
		b.SetParallelism(64)
		b.ResetTimer()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := callUnary(ctx, cc, message); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	b.Run("own", func(b *testing.B) {
		calls(b, percore.Listen, func(lis net.Listener) { startOwn(b, lis) })
	})
	for way := range portWays {
		b.Run(portWays[way].name, func(b *testing.B) {
			calls(b, portWays[way].listen, func(lis net.Listener) { startPort(b, way, lis, nil, NewServer()) })
		})
	}
}
