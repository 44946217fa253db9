package rpc

import (
	"google.golang.org/grpc/codes"

	"github.com/percore/percore/adapters/h2"
	"github.com/percore/percore/internal/shared/counters"
)

// Stats are the metrics of a Server.
type Stats struct {
	Calls    int                   // that are being served
	Detached int                   // of these, calls whose method has returned
	Started  uint64                // calls whose serving has begun
	Ended    map[codes.Code]uint64 // of these, by the code
	Refused  uint64                // of these, without a handler
	Received uint64                // messages
	Sent     uint64                // messages
	HTTP2    h2.Stats              // of the connections of Serve
}

// counter is one of the counters of a Server or Client. Ends come first: sums are read in this order,
// and an end is counted after its beginning, so no difference is below 0.
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

// ended returns the counter of calls that have ended with a code. Codes that gRPC doesn't have are
// Unknown.
func ended(code codes.Code) counter {
	if code >= codes.Code(codeCount) {
		code = codes.Unknown
	}
	return countEnded + counter(code)
}

// counts are the counters of some connections: few processors write to each.
type counts = counters.Cell[counter]

// sums are the sums of all counters.
type sums []int64

// stats returns the sums for a caller. HTTP2 is zero.
func (t sums) stats() Stats {
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

// servers and clients have the counters of the process's Servers, except hidden ones, and Clients.
var servers, clients = counters.NewRegister(counterCount), counters.NewRegister(counterCount)

// ProcessStats returns the sums over all Servers of the process. HTTP2 is zero.
func ProcessStats() Stats { return sums(servers.Sums()).stats() }

// ProcessClientStats is ProcessStats for Clients.
func ProcessClientStats() Stats { return sums(clients.Sums()).stats() }
