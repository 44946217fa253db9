package rpc

import (
	"runtime"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/percore/percore/adapters/h2"
)

// Stats are the metrics of a Server.
type Stats struct {
	Calls    int                   // that are being served
	Detached int                   // of these, those whose method has returned
	Started  uint64                // calls whose serving has begun
	Ended    map[codes.Code]uint64 // of these, by the code
	Refused  uint64                // of these, without a handler
	Received uint64                // messages
	Sent     uint64                // messages
	HTTP2    h2.Stats              // of the connections of Serve
}

// counter is one of the numbers that a Server counts. An end is counted after its beginning, so ends
// come first: sums are read in this order, and no difference is below 0.
type counter uint8

const (
	countEnded    counter = 0 // from here by the code
	countStarted          = countEnded + codeCount
	countRefused          = countStarted + 1
	countReceived         = countStarted + 2 // messages
	countSent             = countStarted + 3 // the same
	countDetached         = countStarted + 4 // calls that are detached now
	counterCount          = countStarted + 5 // how many there are
)

// codeCount is how many codes gRPC has, from OK on.
const codeCount = counter(codes.Unauthenticated) + 1

// ended returns the counter of calls that have ended with a code. Others than gRPC's are Unknown.
func ended(code codes.Code) counter {
	if code >= codes.Code(codeCount) {
		code = codes.Unknown
	}
	return countEnded + counter(code)
}

// counts are those of some connections, so that a few processors write to them. They are apart from
// the Server, which they outlive: see enlist.
type counts struct {
	all [counterCount]atomic.Int64

	_ [64]byte // keeps what follows off the last cache line
}

// procsPerCounts is how many processors share a set of counts, as in package h2.
const procsPerCounts = 4

func newCounts() []counts {
	return make([]counts, (runtime.GOMAXPROCS(0)+procsPerCounts-1)/procsPerCounts)
}

func (n *counts) add(c counter) { n.all[c].Add(1) }

// sums are the counts of several sets.
type sums [counterCount]int64

func (t *sums) add(all []counts) {
	for c := range t {
		for i := range all {
			t[c] += all[i].all[c].Load()
		}
	}
}

// stats returns the sums for a caller, without those of HTTP/2.
func (t *sums) stats() Stats {
	s := Stats{
		Started:  uint64(t[countStarted]),
		Ended:    make(map[codes.Code]uint64, codeCount),
		Refused:  uint64(t[countRefused]),
		Received: uint64(t[countReceived]),
		Sent:     uint64(t[countSent]),
		Detached: int(t[countDetached]),
	}
	s.Calls = int(s.Started)
	for code := range codes.Code(codeCount) {
		n := t[ended(code)]
		s.Ended[code] = uint64(n)
		s.Calls -= int(n)
	}
	return s
}

// Stats returns the metrics of the server.
func (s *Server) Stats() Stats {
	var t sums
	t.add(s.counts)
	all := t.stats()
	all.HTTP2 = s.http.Stats()
	return all
}

// A register has the counts of the process's Servers, or of its Clients. Those of one stay until the
// garbage collector has taken it; then they are folded into gone.
//
// It is the root module's internal/serving once more, in short: another module must not rely on that.
type register struct {
	sync.Mutex
	counts map[*counts][]counts // by the first of a Server or Client
	gone   sums
}

var servers, clients register

// enlist adds the counts of owner to the metrics of the process.
func enlist[T any](r *register, owner *T, all []counts) {
	r.Lock()
	defer r.Unlock()
	if r.counts == nil {
		r.counts = make(map[*counts][]counts)
	}
	r.counts[&all[0]] = all
	runtime.AddCleanup(owner, r.delist, &all[0])
}

// delist is for the counts of a Server or Client that is no more, and so has no calls.
func (r *register) delist(first *counts) {
	r.Lock()
	defer r.Unlock()
	r.gone.add(r.counts[first])
	delete(r.counts, first)
}

// stats returns the sums, without those of HTTP/2.
func (r *register) stats() Stats {
	r.Lock()
	t := r.gone
	for _, all := range r.counts {
		t.add(all)
	}
	r.Unlock()
	return t.stats()
}

// ProcessStats returns the sums over all Servers of the process, without those of HTTP/2.
func ProcessStats() Stats { return servers.stats() }

// ProcessClientStats is ProcessStats for Clients.
func ProcessClientStats() Stats { return clients.stats() }
