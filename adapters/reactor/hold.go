package reactor

// Hold keeps the connection open for answers that are yet to come from goroutines of the program's
// own or from timers, as it is kept for the functions of Go: when the peer has ended its stream, or
// the server is shut down, the connection stays until Release was called as often as Hold, and what
// was written by then is sent. Until then IdleTimeout, ReadIdleTimeout and WriteIdleTimeout don't
// count. Call Hold in the callback that sees the request.
//
// It holds up neither Close, and the minute after that for a peer that takes nothing, nor Abort and
// the server's Close, and it doesn't delay the handler's Close for a connection that has failed. On
// a connection that has ended it does nothing.
func (c *Conn) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.extrasLocked().held++
}

// Release ends a Hold. It panics if there is none.
func (c *Conn) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heldLocked() {
		panic("reactor: Conn.Release without Conn.Hold")
	}
	if c.more.held--; c.more.held == 0 && c.asked.Load()&askEnd != 0 && !c.finished {
		c.loop.remind(c, false) // it may close now
	}
}

func (c *Conn) heldLocked() bool { return c.more != nil && c.more.held > 0 }

// isBusy reports whether an answer is to come: a function of Go waits or runs, or the connection is
// held. After Close none is: it would be refused, and only the peer is waited for.
func (c *Conn) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusing && c.asked.Load()&askEnd != 0 {
		return false
	}
	return (*functions)(c).hasAnyLocked() || c.heldLocked()
}
