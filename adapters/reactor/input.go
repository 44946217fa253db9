package reactor

import (
	"io"

	"github.com/percore/percore/pool"
)

// readsPerEvent is how often in a row a connection is read before others of its loop get their
// turn, 64 KiB each at most.
const readsPerEvent = 2

// read reads what there is and calls Data with it. Bytes that are left in the socket wait for the next
// round, for an event, or for the end of the reason that stops the reading.
func (c *Conn) read() {
	if c.unused != nil && !c.offered && !c.stopped() {
		c.offer()
	}
	for range readsPerEvent {
		if c.stopped() || c.inputEnded {
			return
		}
		into := c.readInto()
		n, err := c.sock.tryRead(into)
		switch {
		case err != nil:
			c.readFailed(err)
			return
		case n == 0:
			return
		}
		c.touch()
		c.received(into[:n])
	}
	c.mu.Lock()
	c.loop.remind(c, false)
	c.mu.Unlock()
}

// stopped reports whether nothing is to be read now.
func (c *Conn) stopped() bool { return c.phase != open || c.asked.Load()&stopsReading != 0 }

// readInto returns the memory for the next bytes: behind those that are kept, or the loop's.
func (c *Conn) readInto() []byte {
	if c.unused == nil {
		return c.loop.readBuffer()
	}
	kept := c.unused.Bytes()
	if len(kept) == cap(kept) {
		b := pool.Get(2 * len(kept))
		b.SetLen(copy(b.Bytes(), kept))
		c.unused.Release()
		c.unused, kept = b, b.Bytes()
	}
	limit := min(cap(kept), max(c.loop.server.config.readBufferMax, len(kept)+1))
	return kept[len(kept):limit:limit]
}

// received calls Data with bytes that were read into readInto's memory.
func (c *Conn) received(p []byte) {
	if c.unused != nil {
		c.unused.SetLen(len(c.unused.Bytes()) + len(p))
		c.offer()
		return
	}
	if left := c.feed(p); len(left) > 0 && c.phase == open {
		c.keep(left)
		c.checkKept()
	}
}

// offer calls Data with all kept bytes.
func (c *Conn) offer() {
	b := c.unused
	kept := b.Bytes()
	left := c.feed(kept)
	switch {
	case c.unused != b: // it was detached
	case len(left) == 0:
		c.unused = nil
		b.Release()
		c.markKept()
	case len(left) < len(kept):
		b.SetLen(copy(kept, left))
		c.markKept()
	}
	c.checkKept()
}

// keep copies bytes that Data has not used.
func (c *Conn) keep(p []byte) {
	c.unused = pool.Get(len(p))
	copy(c.unused.Bytes(), p)
	c.markKept()
}

// checkKept ends the connection if nothing more can be kept.
func (c *Conn) checkKept() {
	if c.phase == open && c.offered && c.unused != nil && len(c.unused.Bytes()) >= c.loop.server.config.readBufferMax {
		c.end(askClose, ErrReadBufferFull)
	}
}

// feed calls Data with p, and again with the rest, until it uses nothing, or reading has to stop. It
// returns the rest.
func (c *Conn) feed(p []byte) (left []byte) {
	l := c.loop
	start := l.now()
	c.offered = false
	for len(p) > 0 && !c.stopped() {
		used := c.data(p)
		if used == 0 {
			c.offered = true
			break
		}
		p = p[used:]
	}
	l.feeding = nil
	l.timed(c, "Data", start)
	return p
}

// data calls Data.
func (c *Conn) data(p []byte) (used int) {
	returned := false
	defer func() {
		if !returned {
			c.loop.input = nil // the handler may hold on to it
			c.panicked("Data", recover())
			used = len(p)
		}
	}()
	c.loop.feeding = p
	used = c.loop.handler.Data(c, p)
	if uint(used) > uint(len(p)) {
		panic(badUse{used, len(p)})
	}
	returned = true
	return used
}

// readFailed deals with the end of the peer's stream, or an error.
func (c *Conn) readFailed(err error) {
	if err != io.EOF {
		c.end(askClose, err)
		return
	}
	c.inputEnded = true
	if e := c.loop.ender; e != nil {
		var unused []byte
		if c.unused != nil {
			unused = c.unused.Bytes()
		}
		c.call("End", func() { e.End(c, unused) })
		c.dropUnused()
		return
	}
	if c.unused != nil {
		err = io.ErrUnexpectedEOF
	}
	c.end(askEnd, err)
}

// dropUnused gives the kept bytes up.
func (c *Conn) dropUnused() {
	if c.unused != nil {
		c.unused.Release()
		c.unused = nil
	}
}
