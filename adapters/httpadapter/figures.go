package httpadapter

import (
	"runtime"
	"sync"

	"github.com/percore/percore"
)

func init() { percore.RegisterAdapter("http", readFigures) }

// servers are the counters of the process's Servers. Those of a Server stay until the garbage
// collector has taken it, because it may serve again; then they are folded into gone.
var servers struct {
	sync.Mutex
	counters map[*counters]struct{}
	gone     sums
}

// enlist adds the counts of s to the figures of the process.
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

// readFigures returns the sums over all Servers of the process.
func readFigures() []percore.Figure {
	servers.Lock()
	t := servers.gone
	for n := range servers.counters {
		t.add(n)
	}
	servers.Unlock()
	return t.figures()
}
