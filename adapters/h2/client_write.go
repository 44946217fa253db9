package h2

// This file is about a client's writes, which callers make. They must neither wait for the server,
// since a context may end, nor lose an answer that is there already when the server takes no more.

// hasRoomLocked reports whether the output can be written without waiting. If it can't a worker writes
// it, and callers wait for their streams. It may release mu, to ask the kernel, which is seldom: the
// answer holds until so many bytes were sent. In memory, where there is no kernel, workers write always.
func (c *Conn) hasRoomLocked() bool { return c.hasRoomForLocked(0) }

// hasRoomForLocked is hasRoomLocked for so many bytes besides the output.
func (c *Conn) hasRoomForLocked(n int) bool {
	if len(c.core.Output())+n > int(c.credit) {
		c.mu.Unlock()
		room := c.below.room()
		c.mu.Lock()
		c.credit = int32(min(room, creditMost))
	}
	return len(c.core.Output())+n <= int(c.credit)
}

// creditMost is how many bytes are sent before the kernel is asked again, at most.
const creditMost = 1 << 20

// cutOffLocked is for a client's connection on which nothing can be sent any more, since the server has
// ended it, or reset it. The reader reads on, because an answer may be there, and ends the connection at
// the server's end, or after lingerTime. grpc-go's client reads on, too.
func (c *Conn) cutOffLocked(err error) {
	end := c.clock.makeEnding()
	end.cut, end.cutAt = err, c.below.now()
	c.dropOutputLocked()
	for c.core.Senders() > 0 {
		s := c.core.Sender().User.(*Stream)
		s.unqueueLocked()
		s.wakeLocked()
	}
	c.changedLocked(Leaving)
	c.setAlarmLocked()
}

// isCutLocked reports whether cutOffLocked was called.
func (c *Conn) isCutLocked() bool { return c.cutLocked() != nil }

// cutLocked returns why nothing more can be sent on a client's connection, or nil.
func (c *Conn) cutLocked() error {
	if c.clock.ends == nil {
		return nil
	}
	return c.clock.ends.cut
}

// cutErrorLocked is cutLocked for users.
func (c *Conn) cutErrorLocked() error {
	if err := c.cutLocked(); err != nil {
		return &ConnError{Code: NoError, Err: err}
	}
	return nil
}
