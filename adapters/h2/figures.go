package h2

import (
	"sync/atomic"

	"github.com/percore/percore"
)

// figures are of all servers of the process.
var figures struct {
	conns    atomic.Int64  // open
	streams  atomic.Uint64 // opened
	resets   atomic.Uint64 // streams that were reset before their end, by the client or because of it
	stalls   atomic.Uint64 // times that a handler waited for a window, or for room
	breaches atomic.Uint64 // connections that were ended because the client broke the protocol
	calm     atomic.Uint64 // connections that were ended because the client exceeded a limit
	refused  atomic.Uint64 // connections whose handshake failed, or chose another protocol
}

func init() { percore.RegisterAdapter("http2", readFigures) }

func readFigures() []percore.Figure {
	return []percore.Figure{
		{Name: "connections", Help: "Connections that are open", Value: float64(figures.conns.Load())},
		{Name: "streams_total", Help: "Streams that clients have opened", Value: float64(figures.streams.Load())},
		{Name: "resets_total", Help: "Streams that clients have reset, or that were reset because of them", Value: float64(figures.resets.Load())},
		{Name: "stalls_total", Help: "Times that a handler has waited for a client's window or for room", Value: float64(figures.stalls.Load())},
		{Name: "breaches_total", Help: "Connections ended because the client broke the protocol", Value: float64(figures.breaches.Load())},
		{Name: "attacks_total", Help: "Connections ended because the client exceeded a limit", Value: float64(figures.calm.Load())},
		{Name: "handshakes_failed_total", Help: "Connections whose handshake failed or chose another protocol", Value: float64(figures.refused.Load())},
	}
}

// countBreach counts a connection that ends with an error.
func countBreach(code ErrCode) {
	if code == EnhanceYourCalm {
		figures.calm.Add(1)
	} else {
		figures.breaches.Add(1)
	}
}
