package reactor

import "time"

// The kernel resets a connection that is closed while bytes from the peer are unread, or on their
// way, and drops the bytes that it has yet to send (RFC 2525, section 2.17). So a connection that is
// closed once everything is written lingers, unless the peer has ended its stream: our stream ends,
// and the loop reads and drops the input until the peer's end, an error, or the end of lingerTime.

// lingerTime is how long net/http, too, waits for a peer that may still be sending. It is a variable
// for tests whose peers a busy machine may hold up.
var lingerTime = 500 * time.Millisecond

// lingerBytes is how much of the input is read. More stays in the socket, whose window closes.
const lingerBytes = 1 << 20

// lingers begins or continues to linger, and reports false once that is over.
func (c *Conn) lingers() bool {
	if c.inputEnded {
		return false
	}
	if !c.lingering {
		if (!c.shut || c.isLayered) && c.sock.conn.CloseWrite() != nil {
			return false
		}
		c.shut, c.lingering = true, true
		c.stopTimeouts()
		c.mu.Lock()
		more := c.extrasLocked()
		c.mu.Unlock()
		more.linger = c.loop.engine.AfterFunc(lingerTime, c.lingered)
	}
	c.dropInput()
	return !c.inputEnded
}

// lingered ends the lingering.
func (c *Conn) lingered() {
	c.loop.begin()
	c.inputEnded = true
	c.settle()
}

// dropInput reads what there is, and drops it.
func (c *Conn) dropInput() {
	for range readsPerEvent {
		if c.more.lingered >= lingerBytes {
			return
		}
		n, err := c.sock.tryRead(c.loop.readBuffer())
		if err != nil {
			c.inputEnded = true
		}
		if n == 0 {
			return
		}
		c.more.lingered += n
	}
	c.remind()
}
