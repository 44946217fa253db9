package grpcadapter

import (
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
)

// counts holds the metrics of all servers and clients of the process, without the calls.
var counts struct {
	conns, foreign atomic.Uint64
	serving        atomic.Int64
}

func init() {
	percore.RegisterAdapter("grpc", func() []percore.Metric {
		const help = "Connections, by whether they are percore's, which hold no read buffer while they wait"
		all := []percore.Metric{
			{Name: "connections_total", Help: help, Label: "kind", Of: "percore", Value: float64(counts.conns.Load())},
			{Name: "connections_total", Help: help, Label: "kind", Of: "foreign", Value: float64(counts.foreign.Load())},
			{Name: "serve_calls", Help: "Calls of Serve that are under way", Value: float64(counts.serving.Load())},
		}
		return append(all, callMetrics(rpc.ProcessStats())...)
	})
	percore.RegisterAdapter("grpc_client", func() []percore.Metric {
		s := rpc.ProcessClientStats()
		all := []percore.Metric{
			{Name: "open_calls", Help: "Attempts of calls of NewClient's clients that are under way", Value: float64(s.Calls)},
			{Name: "started_calls_total", Help: "Attempts of calls that have got a connection", Value: float64(s.Started)},
		}
		return append(all, endMetrics(s, "Attempts of calls that have ended, by the code that was received, or that the client gave them")...)
	})
}

// callMetrics returns the metrics of the calls of Servers.
func callMetrics(s rpc.Stats) []percore.Metric {
	all := []percore.Metric{
		{Name: "open_calls", Help: "Calls that servers of NewServer and Wrap are serving", Value: float64(s.Calls)},
		{Name: "detached_calls", Help: "Of these, calls whose method has returned: see Detach", Value: float64(s.Detached)},
		{Name: "started_calls_total", Help: "Calls whose serving has begun", Value: float64(s.Started)},
		{Name: "refused_calls_total", Help: "Calls answered without a handler: no such method, a bad header, a tap, no time left, LimitWork", Value: float64(s.Refused)},
	}
	return append(all, endMetrics(s, "Calls that have ended, by the code that was sent: Canceled if the client gave up, "+
		"DeadlineExceeded if the time had passed, whatever the handler returned then")...)
}

// endMetrics returns how many calls have ended, by their codes, and how many messages were exchanged.
func endMetrics(s rpc.Stats, ended string) (all []percore.Metric) {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		all = append(all, percore.Metric{
			Name: "calls_total", Help: ended, Label: "code", Of: code.String(), Value: float64(s.Ended[code]),
		})
	}
	const help = "Messages of calls, by whether they were received or sent"
	return append(all,
		percore.Metric{Name: "messages_total", Help: help, Label: "direction", Of: "received", Value: float64(s.Received)},
		percore.Metric{Name: "messages_total", Help: help, Label: "direction", Of: "sent", Value: float64(s.Sent)})
}
