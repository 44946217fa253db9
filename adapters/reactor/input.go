package reactor

import (
	"fmt"
	"io"

	"github.com/percore/percore/internal/pool"
)

// The bytes that Data doesn't use are in Conn.unused, which is nil if there are none. A few of them
// are copied to the front of the loop's buffer when more have come, so that each recv(2) has room for
// a lot; if they are many they stay where they are, and more are read after them.

// readsPerEvent is how often in a row a connection is read before others of its loop get their
// turn, 64 KiB each at most.
const readsPerEvent = 2

// fewBytes is how many unused bytes are copied at most.
const fewBytes = readBytes / 4

// keptSlack is how large a buffer for few unused bytes may be. In a larger one at least a quarter is
// used, so that the rest of a long message does not hold the memory of all of it.
const keptSlack = 4 << 10

// Pause stops the reading: Data isn't called and nothing is read until Resume. Bytes that Data hasn't
// used are kept, the socket's buffer fills, and the peer is held up. So Data may use a part of its
// bytes, or none, and take the rest later. While reading is paused the end of the peer's stream isn't
// seen, nor a lost connection, unless something is written; ReadTimeout doesn't count. A paused
// connection takes the memory of an idle one, besides the kept bytes and the kernel's.
func (c *Conn) Pause() { c.asked.Or(askPause) }

// Resume ends Pause: Data is called with what is kept, on the connection's loop, soon, and then with
// what comes. On a connection that isn't paused it does nothing.
//
// A handler that pauses one connection until there is room in another checks again once it has paused,
// since Writable, and in it Resume, may have come in between:
//
//	if to.Unsent() > mark { // WriteHighWaterMark
//		from.Pause()
//		if to.Unsent() <= mark {
//			from.Resume()
//		}
//	}
func (c *Conn) Resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		asked := c.asked.Load()
		if asked&askPause == 0 {
			return
		}
		if c.asked.CompareAndSwap(asked, asked&^askPause|askOffer) {
			c.loop.remind(c, false)
			return
		}
	}
}

// read reads what there is and calls Data with it. Bytes that are left in the socket wait for the next
// round, for an event, or until reading may go on.
func (c *Conn) read() {
	if asked := c.asked.Load(); asked&askOffer != 0 && asked&askPause == 0 {
		c.asked.And(^askOffer)
		c.offered = false
	}
	for reads := 0; reads < readsPerEvent; {
		switch {
		case c.stopped():
			return
		case c.unused != nil && !c.offered: // first, or the end of the stream might be found before
			c.offer()
			continue
		case c.inputEnded:
			return
		}
		n, err := c.readOnce()
		if err != nil {
			c.readFailed(err)
		}
		if n == 0 {
			return
		}
		reads++
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loop.remind(c, false)
}

// stopped reports whether nothing is to be read now.
func (c *Conn) stopped() bool {
	asked := c.asked.Load()
	return c.phase != open || asked&stopsReading != 0 || asked&askSender != 0 && c.loop.server.broadcasts.hold(c)
}

// readOnce makes one system call and calls Data with its bytes, if there are any.
func (c *Conn) readOnce() (int, error) {
	kept := 0
	if c.unused != nil {
		if kept = len(c.unused.Bytes()); kept > fewBytes {
			return c.readBehind(kept)
		}
	}
	p := c.loop.readBuffer()
	n, err := c.tryRead(p[kept:])
	if n == 0 {
		return 0, err
	}
	c.touchRead()
	if kept > 0 {
		copy(p, c.unused.Bytes())
	}
	c.keep(c.feed(p[:kept+n]), kept+n)
	return n, err
}

// readBehind is readOnce into the buffer of the unused bytes, which it makes larger if it is full.
func (c *Conn) readBehind(kept int) (int, error) {
	b := c.unused
	if kept == cap(b.Bytes()) {
		b = pool.Get(2 * kept)
		copy(b.Bytes(), c.unused.Bytes())
		c.unused.Release()
		c.unused = b
	}
	room := max(c.loop.server.config.ReadBufferMax, kept+1)
	b.SetLen(min(cap(b.Bytes()), room))
	n, err := c.tryRead(b.Bytes()[kept:])
	b.SetLen(kept + n)
	if n > 0 {
		c.touchRead()
		c.offer()
	}
	return n, err
}

// offer calls Data with the unused bytes.
func (c *Conn) offer() {
	p := c.unused.Bytes()
	c.keep(c.feed(p), len(p))
}

// keep keeps the rest of so many bytes that Data was called with.
func (c *Conn) keep(left []byte, of int) {
	if c.phase != open { // it was hijacked
		c.dropUnused()
		return
	}
	had := c.unused != nil
	switch {
	case len(left) == 0:
		c.dropUnused()
	case had && fits(c.unused, len(left)):
		c.unused.SetLen(len(left))
		copy(c.unused.Bytes(), left) // which may be its own end
	default:
		b := pool.Get(len(left))
		copy(b.Bytes(), left)
		c.dropUnused()
		c.unused = b
	}
	if !had || len(left) < of {
		c.markKept()
	}
	if c.offered && len(left) >= c.loop.server.config.ReadBufferMax && c.asked.Load()&(askPause|askOffer) == 0 {
		c.end(askClose, ErrReadBufferFull)
	}
}

// fits reports whether a buffer is the right one to keep so many bytes in.
func fits(b *pool.Buffer, n int) bool {
	size := cap(b.Bytes())
	return n <= size && size <= max(keptSlack, 4*n)
}

// dropUnused drops the kept bytes.
func (c *Conn) dropUnused() {
	if c.unused != nil {
		c.unused.Release()
		c.unused = nil
	}
}

// feed calls Data with p, and again with the rest, until it uses nothing or reading has to stop. It
// returns the rest.
func (c *Conn) feed(p []byte) (left []byte) {
	l := c.loop
	start := l.now()
	each := l.server.config.SlowCallback > 0
	c.offered = false
	calls := int64(0)
	for len(p) > 0 && !c.stopped() {
		calls++
		made := l.server.broadcasts.made.Load()
		used := c.data(p)
		if l.server.broadcasts.made.Load() != made { // by Data; or by others, and then c waits with them
			c.asked.Or(askSender)
		}
		if each {
			start = l.timed(c, "Data", start)
		}
		if used == 0 {
			c.offered = true
			break
		}
		p = p[used:]
	}
	l.feeding, l.fed = nil, nil
	l.counts.Add(countDataCalls, calls)
	if !each {
		l.timed(c, "Data", start)
	}
	return p
}

// data calls Data.
func (c *Conn) data(p []byte) (used int) {
	returned := false
	defer func() {
		if !returned {
			c.spoiled()
			c.failed("Data", recover())
			used = len(p)
		}
	}()
	c.loop.feeding, c.loop.fed = p, c
	used = c.loop.handler.Data(c, p)
	if uint(used) > uint(len(p)) {
		panic(fmt.Sprintf("Data returned that it has used %d of %d bytes", used, len(p)))
	}
	returned = true
	return used
}

// spoiled leaves the memory that Data had to the garbage collector: a Data that did not return may have
// passed it on.
func (c *Conn) spoiled() {
	c.loop.input, c.loop.feeding, c.loop.fed = nil, nil, nil
	if c.unused != nil {
		c.unused.Discard()
		c.unused = nil
	}
}

// readFailed deals with the end of the peer's stream, or an error.
func (c *Conn) readFailed(err error) {
	if err == io.ErrUnexpectedEOF { // in a record of TLS: the answers to what came before are sent
		c.inputEnded = true
		c.end(askEnd, err)
		return
	}
	if err != io.EOF {
		c.end(askClose, err)
		return
	}
	c.inputEnded = true
	if e := c.loop.ender; e != nil {
		c.ended(e)
		return
	}
	if c.unused != nil {
		err = io.ErrUnexpectedEOF
	}
	c.end(askEnd, err)
}

// ended calls End.
func (c *Conn) ended(e EndHandler) {
	l := c.loop
	if c.unused != nil {
		l.feeding = c.unused.Bytes()
	}
	l.fed = c
	returned := false
	defer func() {
		l.feeding, l.fed = nil, nil
		if !returned {
			c.spoiled()
		}
	}()
	c.call("End", func() {
		e.End(c, l.feeding)
		returned = true
	})
	if returned {
		c.dropUnused()
		c.markKept() // no message is begun any more: ReadTimeout is over
	}
}
