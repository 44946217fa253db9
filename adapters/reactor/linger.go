package reactor

import "github.com/percore/percore/internal/serving"

// A connection that is closed once everything is written lingers, unless the peer has ended its stream:
// our stream ends, and the loop reads and drops the input until the peer's end, an error, or the end of
// lingerTime.

// lingerTime is a variable for tests whose peers a busy machine may hold up.
var lingerTime = serving.LingerTime

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
		(*clock)(c).stop()
		c.mu.Lock()
		more := c.extrasLocked()
		c.mu.Unlock()
		more.linger = c.loop.engine.AfterFunc(lingerTime, c.lingered)
	}
	c.dropInput()
	return !c.inputEnded
}

func (c *Conn) lingered() {
	c.loop.begin()
	c.inputEnded = true
	c.settle()
}

func (c *Conn) dropInput() {
	for range readsPerEvent {
		if c.more.lingered >= serving.LingerBytes {
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
