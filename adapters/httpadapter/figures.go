package httpadapter

import (
	"runtime"
	"sync"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/httpadapter/internal/http1"
)

func init() { percore.RegisterAdapter("http", readFigures) }

// servers are the counters of the process's Servers. Those of a Server stay until the garbage
// collector has taken it, because it may serve again; then they are folded into gone.
var servers struct {
	sync.Mutex
	counters map[*counters]struct{}
	gone     sums
}

// enlist has s count for the process.
func (s *Server) enlist() {
	servers.Lock()
	defer servers.Unlock()
	if servers.counters == nil {
		servers.counters = make(map[*counters]struct{})
	}
	servers.counters[s.stats] = struct{}{}
	runtime.AddCleanup(s, (*counters).delist, s.stats)
}

// delist is for the counters of a Server that is no more, and so has no connections.
func (n *counters) delist() {
	servers.Lock()
	defer servers.Unlock()
	servers.gone.add(n)
	delete(servers.counters, n)
}

// sums are counters of several Servers.
type sums struct {
	Stats
	serving    int
	requests   uint64
	handedOver [reasonCount]uint64
}

func (t *sums) add(n *counters) {
	s := n.read()
	t.Conns += s.Conns
	t.Waiting += s.Waiting
	t.Parked += s.Parked
	t.Parks += s.Parks
	t.Unparks += s.Unparks
	t.HandedOver += s.HandedOver
	t.Adopted += s.Adopted
	t.Foreign += s.Foreign
	t.HTTP2 += s.HTTP2
	t.Hijacked += s.Hijacked
	t.Buffered += s.Buffered
	t.Unsafe = t.Unsafe || s.Unsafe
	t.serving += int(n.serving.Load())
	t.requests += n.requests.Load()
	for r := range n.handedOver {
		t.handedOver[r] += n.handedOver[r].Load()
	}
}

// readFigures returns the sums over all Servers of the process.
func readFigures() []percore.Figure {
	servers.Lock()
	t := servers.gone
	for n := range servers.counters {
		t.add(n)
	}
	servers.Unlock()

	const connsHelp = "Open connections that can be parked, by what they do: wait for their first byte, are parked, " +
		"are served by the fast path, are net/http's"
	unsafe := 0.0
	if t.Unsafe {
		unsafe = 1
	}
	all := []percore.Figure{
		{Name: "connections", Help: connsHelp, Label: "state", Of: "waiting", Value: float64(t.Waiting)},
		{Name: "connections", Help: connsHelp, Label: "state", Of: "parked", Value: float64(t.Parked)},
		{Name: "connections", Help: connsHelp, Label: "state", Of: "fastpath", Value: float64(t.serving)},
		// The counters are read one after the other.
		{Name: "connections", Help: connsHelp, Label: "state", Of: "nethttp", Value: float64(max(t.Conns-t.Waiting-t.Parked-t.serving, 0))},
		{Name: "parks_total", Help: "Times that a connection was parked", Value: float64(t.Parks)},
		{Name: "unparks_total", Help: "Times that a parked connection was handed to net/http again", Value: float64(t.Unparks)},
		{Name: "handed_over_connections_total", Help: "Connections that another process has taken over", Value: float64(t.HandedOver)},
		{Name: "adopted_connections_total", Help: "Connections that have come from another process, where they had requests", Value: float64(t.Adopted)},
		{Name: "buffered_waits_total", Help: "Waits for a request that could not be parked, since a part of it was there", Value: float64(t.Buffered)},
		{Name: "foreign_connections_total", Help: "Connections that can't be parked because they are no *percore.Conn", Value: float64(t.Foreign)},
		{Name: "http2_connections_total", Help: "Connections that are not parked because they speak HTTP/2, or another protocol that ALPN chose", Value: float64(t.HTTP2)},
		{Name: "hijacked_connections_total", Help: "Connections that handlers have hijacked", Value: float64(t.Hijacked)},
		{Name: "parking_unsafe", Help: "1 if nothing is parked because this net/http does not wait for requests as parking relies on", Value: unsafe},
		{Name: "fastpath_requests_total", Help: "Requests that the fast path has served", Value: float64(t.requests)},
	}
	for r := range reason(reasonCount) {
		if r == reasonOf(http1.Plain) || r == reasonOf(http1.Incomplete) {
			continue // no reasons
		}
		all = append(all, percore.Figure{
			Name: "fastpath_handed_over_total", Help: "Requests that the fast path has left to net/http, by the reason",
			Label: "reason", Of: r.String(), Value: float64(t.handedOver[r]),
		})
	}
	return all
}
