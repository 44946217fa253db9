package h1

import "time"

// A Sight is what tests of the host see of a connection.
type Sight struct {
	State        string    // and its bits: "parked began"
	HasPart      bool      // the beginning of a header was read, or an empty line before it, and is kept
	Part         int       // how many bytes are kept
	ReadDeadline time.Time // that a timeout or the user has set
	Shaken       bool      // the handshake is over
	Crowded      bool      // so many of the program's goroutines want to run that its worker doesn't yield
}

// Sight may be called at any time.
func (c *Conn) Sight() Sight {
	crowded := c.queue.workers.Crowded()
	c.mu.Lock()
	defer c.mu.Unlock()
	state := c.load()
	s := Sight{State: state.String(), ReadDeadline: c.real.get().time(), Crowded: crowded}
	if st := state.state(); st == stateFresh || st == stateParked { // otherwise kept is a worker's
		if s.HasPart = c.kept != nil; s.HasPart {
			s.Part = len(c.kept.bytes)
		}
	}
	s.Shaken = c.ext != nil && c.ext.shaken
	return s
}
