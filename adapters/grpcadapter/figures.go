package grpcadapter

import (
	"sync/atomic"

	"github.com/percore/percore"
)

// counts holds the figures of all servers and clients of the process.
var counts struct {
	conns, foreign, sparing atomic.Uint64
	serving                 atomic.Int64
}

func init() {
	percore.RegisterAdapter("grpc", func() []percore.Figure {
		const help = "Connections, by whether they are percore's, which hold no read buffer while they wait"
		return []percore.Figure{
			{Name: "connections_total", Help: help, Label: "kind", Of: "percore", Value: float64(counts.conns.Load())},
			{Name: "connections_total", Help: help, Label: "kind", Of: "foreign", Value: float64(counts.foreign.Load())},
			{Name: "sparing_connections_total", Help: "Connections over TLS that Credentials has relieved of the read buffer", Value: float64(counts.sparing.Load())},
			{Name: "serve_calls", Help: "Calls of Serve that are under way", Value: float64(counts.serving.Load())},
		}
	})
}
