package pool

// Counter is a number that a client counts: first those of the pool, which rise and fall in the cell of
// their host, then the client's own.
type Counter uint8

const (
	Conns      Counter = iota // Conns counts connections
	Idle                      // Idle counts connections for one call at a time that have no call
	Dialing                   // Dialing counts dials under way
	Waiting                   // Waiting counts calls that wait for a connection
	IdleShared                // IdleShared counts shared connections without a stream
	CounterEnd                // CounterEnd is the number of the counters above
)

// idleConns returns how many connections for one call at a time are idle, over all hosts.
func (p *Pool) idleConns() (n int64) {
	for _, cell := range p.Counters.Cells {
		n += cell.Load(Idle)
	}
	return n
}
