package reactor

// Hold keeps the connection open for answers that will come from the program's own goroutines or from
// timers, as functions of Go do: when the peer has ended its stream, or the server is shut down, the
// connection stays until Release was called as often as Hold, and everything written is sent. Until
// then IdleTimeout, ReadIdleTimeout and WriteIdleTimeout don't count. Call Hold in the callback that
// sees the request.
//
// It doesn't hold up Close, or the minute after that for a peer that takes nothing, or Abort, or the
// server's Close, or the handler's Close for a connection that has failed. It does nothing on a
// connection that has ended.
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

// isBusy reports whether an answer may come: a function of Go waits or runs, or the connection is
// held. After Close it reports false: an answer would be refused, and only the peer can delay the end.
func (c *Conn) isBusy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refusing && c.asked.Load()&askEnd != 0 {
		return false
	}
	return (*functions)(c).hasAnyLocked() || c.heldLocked()
}
