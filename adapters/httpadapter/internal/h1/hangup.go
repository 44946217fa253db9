package h1

// This file has what Shutdown, Close and SetKeepAlivesEnabled call for each connection of a queue in
// turn.

// closeServed closes a connection that a worker has, which calls the hook.
func (c *Conn) closeServed() {
	if servedStates.has(c.loadLocked().state()) {
		_ = c.Identity().Close()
	}
}

// hangUp closes a connection that is kept, as net/http closes an idle one: over
// TLS with a farewell, which may block for a while.
func (c *Conn) hangUp() {
	if keptStates.has(c.loadLocked().state()) {
		_ = c.Identity().Close()
	}
}

// hangUpIdle is hangUp for a connection between two requests.
func (c *Conn) hangUpIdle() {
	switch s := c.loadLocked(); s.state() {
	case stateTakenOut:
		if !s.has(began) {
			return
		}
		fallthrough
	case stateParked:
		_ = c.Identity().Close()
	}
}
