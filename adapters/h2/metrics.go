package h2

import (
	"reflect"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/http2"
	"github.com/percore/percore/internal/shared/counters"
)

// Stats are the metrics of a [Server]. They are read one after the other, not at one instant.
type Stats struct {
	Conns    int // connections that are open
	Active   int // of these, with streams
	Draining int // of these, told to end: see Conn.GoAway

	Streams      int // streams that are open, or whose handlers have not returned
	Stalled      int // of these, waiting for the client to open its windows or to read
	StalledConns int // connections that have such streams

	Opened          uint64 // connections that the server was given
	HandshakeErrors uint64 // connections whose TLS handshake failed, or chose another protocol

	Requests       uint64 // streams that clients have opened, and that were accepted
	Served         uint64 // of these, streams whose answer was complete
	ResetsByClient uint64 // streams that clients have reset
	ResetsByServer uint64 // streams that were reset by handlers, or because of the client
	Refused        uint64 // streams that the Handler has refused, or that exceeded a limit
	LargeHeaders   uint64 // requests with the Problem TooLarge
	Stalls         uint64 // times that a stream began to wait for the client's windows, or for it to read

	Breaches uint64            // connections that ended because the client broke the protocol
	Attacks  map[string]uint64 // connections that ended because the client exceeded a limit, by the limit
	Timeouts map[string]uint64 // connections that ended because the client was too slow, by what it did not do
}

// counter is one of the numbers that a Server counts. An end is counted after its beginning, so ends
// come first: sums are read in this order, and no difference is below 0.
type counter uint8

const (
	countClosed counter = iota // connections
	countServed                // streams
	countLost                  // streams that have ended otherwise
	countStreams
	countActive
	countConns
	countDraining
	countStalled
	countStalledConns
	countHandshakeErrors
	countResetsByClient
	countResetsByServer
	countRefused
	countLargeHeaders
	countStalls
	countBreaches
	countAttacks                                               // from here by the limit
	countTimeouts = countAttacks + counter(len(limits))        // from here by the kind
	counterCount  = countTimeouts + counter(len(timeoutNames)) // how many there are
)

// limits are the names of the core's limits.
var limits = [...]string{
	http2.HeaderLimit - 1: "header_block",
	http2.IdleLimit - 1:   "useless_frames",
	http2.ResetLimit - 1:  "resets",
	http2.AnswerLimit - 1: "unread_answers",
}

// The counters of clients that are too slow, by what they have not done in time.
const (
	timeoutBegin = countTimeouts + iota // sent its preface and SETTINGS: Config.BeginTimeout
	timeoutRead                         // read what it was sent: Config.WriteTimeout
	timeoutPing                         // answered a PING: Config.PingTimeout
)

var timeoutNames = [...]string{"begin", "read", "ping"}

// sums are the sums of all counters.
type sums []int64

// stats returns the sums for a caller.
func (t sums) stats() Stats {
	n := func(c counter) uint64 { return uint64(t[c]) }
	conns := int(t[countConns] - t[countClosed])
	s := Stats{
		Conns:           conns,
		Active:          min(int(t[countActive]), conns), // handlers may outlive their connection
		Draining:        int(t[countDraining]),
		Streams:         int(t[countStreams] - t[countServed] - t[countLost]),
		Stalled:         int(t[countStalled]),
		StalledConns:    int(t[countStalledConns]),
		Opened:          n(countConns),
		HandshakeErrors: n(countHandshakeErrors),
		Requests:        n(countStreams),
		Served:          n(countServed),
		ResetsByClient:  n(countResetsByClient),
		ResetsByServer:  n(countResetsByServer),
		Refused:         n(countRefused),
		LargeHeaders:    n(countLargeHeaders),
		Stalls:          n(countStalls),
		Breaches:        n(countBreaches),
		Attacks:         make(map[string]uint64, len(limits)),
		Timeouts:        make(map[string]uint64, len(timeoutNames)),
	}
	for i, name := range limits {
		s.Attacks[name] = n(countAttacks + counter(i))
	}
	for i, name := range timeoutNames {
		s.Timeouts[name] = n(countTimeouts + counter(i))
	}
	return s
}

// Add adds the metrics of another server.
func (s *Stats) Add(other Stats) {
	to, from := reflect.ValueOf(s).Elem(), reflect.ValueOf(other)
	for i := range to.NumField() {
		switch sum, more := to.Field(i), from.Field(i); {
		case sum.CanInt():
			sum.SetInt(sum.Int() + more.Int())
		case sum.CanUint():
			sum.SetUint(sum.Uint() + more.Uint())
		default: // it may be another's map, too, which stays as it is
			all := make(map[string]uint64)
			for _, m := range []reflect.Value{sum, more} {
				for name, n := range m.Interface().(map[string]uint64) {
					all[name] += n
				}
			}
			sum.Set(reflect.ValueOf(all))
		}
	}
}

func init() { percore.RegisterAdapter("http2", readMetrics) }

// servers has the counters of the process's Servers.
var servers = counters.NewRegister(counterCount)

// readMetrics returns the sums over all Servers of the process.
func readMetrics() []percore.Metric {
	s := sums(servers.Sums()).stats()
	metrics := []percore.Metric{
		stateMetric("active", s.Active),
		stateMetric("idle", s.Conns-s.Active),
		{Name: "draining_connections", Help: "Open connections that were told to end", Value: float64(s.Draining)},
		{Name: "open_streams", Help: "Streams that are open, or whose handlers have not returned", Value: float64(s.Streams)},
		{Name: "stalled_streams", Help: "Streams that wait for the client to open its windows or to read", Value: float64(s.Stalled)},
		{Name: "stalled_connections", Help: "Connections that have stalled streams", Value: float64(s.StalledConns)},
		{Name: "opened_connections_total", Help: "Connections that servers were given", Value: float64(s.Opened)},
		{Name: "streams_total", Help: "Streams that clients have opened", Value: float64(s.Requests)},
		{Name: "served_streams_total", Help: "Streams whose answer was complete", Value: float64(s.Served)},
		resetMetric("client", s.ResetsByClient),
		resetMetric("server", s.ResetsByServer),
		{Name: "refused_streams_total", Help: "Streams that a handler refused, or that exceeded a limit", Value: float64(s.Refused)},
		{Name: "large_headers_total", Help: "Requests answered with 431 because of a large header", Value: float64(s.LargeHeaders)},
		{Name: "stalls_total", Help: "Times that a stream began to wait for the client's windows, or for it to read", Value: float64(s.Stalls)},
		{Name: "handshakes_failed_total", Help: "Connections whose handshake failed or chose another protocol; httpadapter reports its own in the log", Value: float64(s.HandshakeErrors)},
		{Name: "breaches_total", Help: "Connections ended because the client broke the protocol", Value: float64(s.Breaches)},
	}
	return appendEnds(metrics, "client", s.Attacks, s.Timeouts)
}

// appendEnds appends how often a peer has made connections end.
func appendEnds(to []percore.Metric, peer string, attacks, timeouts map[string]uint64) []percore.Metric {
	for _, name := range limits {
		to = append(to, percore.Metric{
			Name: "attacks_total", Help: "Connections ended because the " + peer + " exceeded a limit of docs/LIMITS.md, by limit",
			Label: "limit", Of: name, Value: float64(attacks[name]),
		})
	}
	for _, name := range timeoutNames {
		to = append(to, percore.Metric{
			Name: "timeouts_total",
			Help: "Connections ended because the " + peer + " was too slow, by what was waited for: its first frames (begin), " +
				"that it reads what it was sent (read), the answer to a ping (ping)",
			Label: "waiting_for", Of: name, Value: float64(timeouts[name]),
		})
	}
	return to
}

func stateMetric(state string, n int) percore.Metric {
	return percore.Metric{
		Name: "connections", Help: "Open connections, by whether they have streams", Label: "state", Of: state, Value: float64(n),
	}
}

func resetMetric(by string, n uint64) percore.Metric {
	return percore.Metric{
		Name: "resets_total", Help: "Streams that were reset, by the side that did it", Label: "by", Of: by, Value: float64(n),
	}
}

// ClientStats are the metrics of a [Client]. They are read one after the other, not at one instant.
type ClientStats struct {
	Conns  int // connections that are open
	Active int // of these, with streams

	Streams int // streams that are open

	Opened   uint64 // connections that the client was given
	Requests uint64 // streams that were opened
	Ended    uint64 // of these, streams that have ended
	Failed   uint64 // of these, streams that have ended early: by a reset, or with their connection
	Waits    uint64 // times that a stream began to wait for the server: to be opened, for windows, for it to read

	ResetsByServer uint64            // streams that servers have reset
	ResetsByClient uint64            // streams that were reset by this side
	Breaches       uint64            // connections that ended because the server broke the protocol
	Attacks        map[string]uint64 // connections that ended because the server exceeded a limit, by the limit
	Timeouts       map[string]uint64 // connections that ended because the server was too slow, by what it did not do
}

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
var clients = counters.NewRegister(counterCount)

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
