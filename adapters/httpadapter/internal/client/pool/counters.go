package pool

// Counter is one of the numbers that a client counts. Those of the pool rise and fall, always in the
// same cell, the host's. Behind them the client has others.
type Counter uint8

const (
	Conns      Counter = iota // Conns is connections
	Idle                      // Idle is those for one call at a time that have none
	Dialing                   // Dialing is dials under way
	Waiting                   // Waiting is calls that wait for a connection
	IdleShared                // IdleShared is connections that calls share, without a stream
	CounterEnd                // CounterEnd is how many there are
)

// idleConns returns how many connections of all hosts, for one call at a time, wait for a request.
func (p *Pool) idleConns() (n int64) {
	for _, cell := range p.Counters.Cells {
		n += cell.Load(Idle)
	}
	return n
}
