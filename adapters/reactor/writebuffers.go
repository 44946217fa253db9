package reactor

// WriteBuffers is Write of several slices, one after the other: a header and a body, between which
// no other goroutine's bytes come. It keeps neither p nor its slices. All of them are taken, or none.
func (c *Conn) WriteBuffers(p ...[]byte) (int, error) {
	if c.isLayered {
		return c.writeLayered(c.loop.roomer != nil, p...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	size := 0
	for _, b := range p {
		size += len(b)
	}
	if err := c.admitLocked(size, c.loop.roomer != nil); err != nil {
		return 0, c.sock.opError("write", err)
	}
	l := c.loop
	switch {
	case size == 0:
	case c.sending || c.unsent != nil || !c.collecting && l.remind(c, true):
		c.backlogLocked().appendAll(nil, p, 0)
		c.addedLocked()
	case !c.collecting:
		c.sendAllLocked(nil, p, size)
	case len(l.collected)+size <= collectedMax:
		for _, b := range p {
			l.collected = append(l.collected, b...)
		}
	default:
		collected := l.collected
		l.collected = nil // as in Write
		c.sendAllLocked(collected, p, len(collected)+size)
		if c.collecting && l.collected == nil {
			l.collected = collected[:0]
		}
	}
	return size, nil
}

// sendAllLocked sends p, and then all of v, and puts the rest into the backlog, which is empty. size is
// the number of all these bytes.
func (c *Conn) sendAllLocked(p []byte, v [][]byte, size int) {
	n, err, full := 0, error(nil), false
	if len(v) < partsPerSend { // or they may be more than a system call takes
		if n, err, full = c.trySendLocked(p, nil, v...); err != nil {
			c.sendFailedLocked(err)
			return
		}
	}
	if n < size {
		if c.asked.Load()&askClose != 0 {
			c.dropUnsentLocked(size - n) // as in sendLocked
			return
		}
		c.backlogLocked().prependAll(p, v, n)
		c.blocked = full
		c.crowdedLocked()
	}
	c.flushLocked()
}

// appendAll copies p and the slices of v to the end, without the first bytes, which are sent.
func (b *backlog) appendAll(p []byte, v [][]byte, sent int) {
	skip := min(sent, len(p))
	b.append(p[skip:])
	for _, q := range v {
		sent -= skip
		skip = min(sent, len(q))
		b.append(q[skip:])
	}
}

// prependAll is appendAll at the front.
func (b *backlog) prependAll(p []byte, v [][]byte, sent int) {
	rest := b.parts
	b.parts = nil
	b.appendAll(p, v, sent)
	b.parts = append(b.parts, rest...)
}
