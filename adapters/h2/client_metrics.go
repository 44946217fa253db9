package h2

import (
	"github.com/percore/percore"
	"github.com/percore/percore/internal/serving"
)

// ClientStats are the metrics of a [Client]. They are read one after the other, not in one instant.
type ClientStats struct {
	Conns  int // connections that are open
	Active int // of these, with streams

	Streams int // streams that are open

	Opened   uint64 // connections that the client was given
	Requests uint64 // streams that were opened
	Ended    uint64 // of these, those that have ended
	Failed   uint64 // of these, those that have ended early: by a reset, or with their connection
	Waits    uint64 // times that a stream began to wait for the server: to be opened, for windows, for it to read

	ResetsByServer uint64            // streams that servers have reset
	ResetsByClient uint64            // streams that were reset by this side
	Breaches       uint64            // connections that ended because the server broke the protocol
	Attacks        map[string]uint64 // connections that ended because the server exceeded a limit, by the limit
	Timeouts       map[string]uint64 // connections that ended because the server was too slow, by what it did not do
}

// Stats returns the metrics of the client.
func (cl *Client) Stats() ClientStats { return sums(cl.conns.counters.Sums()).clientStats() }

func (t sums) clientStats() ClientStats {
	s := t.stats()
	return ClientStats{
		Conns: s.Conns, Active: s.Active,
		Streams: max(0, int(t[countStreams]-t[countServed])),
		Opened:  s.Opened, Requests: s.Requests, Ended: s.Served, Failed: uint64(t[countLost]), Waits: s.Stalls,
		ResetsByServer: s.ResetsByClient, ResetsByClient: s.ResetsByServer,
		Breaches: s.Breaches, Attacks: s.Attacks, Timeouts: s.Timeouts,
	}
}

func init() { percore.RegisterAdapter("http2_client", readClientMetrics) }

// clients has the counters of the process's Clients.
var clients = serving.NewRegister(counterCount)

// readClientMetrics returns the sums over all Clients of the process.
func readClientMetrics() []percore.Metric {
	s := sums(clients.Sums()).clientStats()
	metrics := []percore.Metric{
		stateMetric("active", s.Active),
		stateMetric("idle", s.Conns-s.Active),
		{Name: "open_streams", Help: "Streams that are open", Value: float64(s.Streams)},
		{Name: "opened_connections_total", Help: "Connections that clients were given", Value: float64(s.Opened)},
		{Name: "streams_total", Help: "Streams that were opened", Value: float64(s.Requests)},
		{Name: "failed_streams_total", Help: "Streams that ended early: by a reset, or with their connection", Value: float64(s.Failed)},
		{Name: "waits_total", Help: "Times that a stream began to wait for the server: to be opened, for windows, for it to read", Value: float64(s.Waits)},
		resetMetric("server", s.ResetsByServer),
		resetMetric("client", s.ResetsByClient),
		{Name: "breaches_total", Help: "Connections ended because the server broke the protocol", Value: float64(s.Breaches)},
	}
	return appendEnds(metrics, "server", s.Attacks, s.Timeouts)
}
