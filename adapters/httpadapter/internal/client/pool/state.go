package pool

import (
	"iter"
	"time"
)

// State is a snapshot of a host, for tests of the client.
type State struct {
	Open, Idle    int           // connections that count for MaxConnsPerHost; connections without a call
	Dials, Queued int           // dials under way, and calls that wait without a dial
	Took          time.Duration // by the last dial, if its connection is shared
}

// States returns the hosts with their states, each taken at a different moment.
func (p *Pool) States() iter.Seq2[*Host, State] {
	return func(yield func(*Host, State) bool) {
		for h := range p.all {
			h.mu.Lock()
			s := State{Open: h.open, Idle: len(h.idle), Dials: len(h.dials), Took: h.took}
			for w := h.undialed; w != nil; w = w.Next() {
				s.Queued++
			}
			h.mu.Unlock()
			if !yield(h, s) {
				return
			}
		}
	}
}
