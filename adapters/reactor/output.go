package reactor

import (
	"net"
	"runtime"

	engpool "github.com/percore/percore/internal/pool"
	"github.com/percore/percore/pool"
)

// The bytes that a connection has yet to send are in Loop.collected while its handler runs, and
// otherwise in its backlog. One goroutine at a time sends, without a lock: the loop, or the caller of
// Write if the loop is not at work.
//
//	unsent, sending   meaning                             leaves by
//	nil, no           nothing waits                       Write: sends; or, if the loop is at work,
//	                                                      unsent, and the loop sends at the end
//	nil, yes          a Write's bytes are being sent      all taken: nothing waits; not all: unsent
//	unsent, yes       the backlog is being sent           the same
//	unsent, no        it is blocked: the socket was full; an event: sends
//	                  or the loop is about to send        the loop: sends
//
// The sender sets blocked when the socket was full, unless an event has come since its system call
// (roomEvent), so that no event is missed.

// collectedMax is how much is collected while a handler runs. A write that would exceed it is
// sent at once, with all before it, and is not copied.
const collectedMax = 8 << 10

// Write sends p, which it does not keep, to the peer. It does not block: bytes that the socket does
// not take wait in memory. While the handler runs, or other callbacks of the loop, writes are
// collected, and sent together afterwards.
//
// It takes all of p or nothing. It fails with a [net.OpError] of [net.ErrClosed] once the connection
// is closed, or is closing, and of [ErrWriteBufferFull] if, after the socket was tried, more than
// WriteHardLimit bytes would wait; if none wait p may have any length. A refused Write
// ends the connection, unless the handler is a [WritableHandler]. An error in sending always
// does.
func (c *Conn) Write(p []byte) (int, error) { return c.write(c.loop.writable != nil, nil, p) }

// WriteBuffers is Write of several slices, one after the other: a header and a body, between which
// no other goroutine's bytes come. It keeps neither p nor its slices. All of them are taken, or none.
func (c *Conn) WriteBuffers(p ...[]byte) (int, error) {
	return c.write(c.loop.writable != nil, nil, p...)
}

// WriteShared writes b's bytes without copying them, for a message that goes to many
// connections: a connection that has to wait for its peer holds a reference to b. The bytes must
// not be changed any more. The caller keeps its own reference. It fails as Write does.
func (c *Conn) WriteShared(b *pool.Buffer) error {
	if b == nil {
		return errNil("WriteShared", "*pool.Buffer")
	}
	_, err := c.write(c.loop.writable != nil, (*engpool.Buffer)(b), b.Bytes())
	return err
}

// write writes all of p. If it is refused the connection ends, unless told says that the program learns
// of it. shared, if not nil, is the buffer of the bytes, which are not copied then.
func (c *Conn) write(told bool, shared *engpool.Buffer, p ...[]byte) (size int, err error) {
	for _, q := range p {
		size += len(q)
	}
	if c.isLayered {
		return c.writeLayered(told, size, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admitLocked(size, told); err != nil {
		return 0, c.sock.opError("write", err)
	}
	c.putLocked(shared, size, p...)
	return size, nil
}

// putLocked sends p, size bytes, or puts them where they are sent soon.
func (c *Conn) putLocked(shared *engpool.Buffer, size int, p ...[]byte) {
	l := c.loop
	switch {
	case size == 0:
	case c.sending || c.unsent != nil || !c.collecting && l.remind(c, true):
		c.addLocked(shared, p...)
	case !c.collecting:
		c.sendLocked(shared, size, p...)
	case shared != nil:
		c.backlogLocked().append(l.collected)
		l.collected = l.collected[:0]
		c.addLocked(shared, p...)
	case len(l.collected)+size <= collectedMax:
		for _, q := range p {
			l.collected = append(l.collected, q...)
		}
	default:
		collected := l.collected
		l.collected = nil // the handler of another connection may run before it is sent
		var all [partsPerSend][]byte
		c.sendLocked(nil, len(collected)+size, append(append(all[:0], collected), p...)...)
		if c.collecting && l.collected == nil {
			l.collected = collected[:0]
		}
	}
}

// admitLocked returns why n more bytes can't be written. If too many wait, the
// connection ends, unless told is set, and Writable will be called if there is one.
func (c *Conn) admitLocked(n int, told bool) error {
	if c.unsent != nil && n > 0 && c.fullLocked(n) {
		c.loop.counts.Add(countRefusedWrites, 1)
		if !told {
			c.endLocked(askClose, ErrWriteBufferFull)
		} else if c.loop.writable != nil {
			c.asked.Or(askTell)
		}
		return ErrWriteBufferFull
	}
	if c.refusing {
		return net.ErrClosed
	}
	return nil
}

// fullLocked reports whether n more bytes would be too many. Before it says so it sends as much of
// the backlog as the socket takes, even if the socket was full, since its event may come after
// tasks of the loop; and if another goroutine is sending it waits for that call, which doesn't block.
func (c *Conn) fullLocked(n int) bool {
	for tried := false; !c.refusing && c.unsent != nil && c.unsent.bytes+n > c.loop.server.config.WriteHardLimit; {
		switch {
		case c.sending:
			c.mu.Unlock()
			runtime.Gosched()
			c.mu.Lock()
		case c.blocked && tried:
			return true
		default:
			tried, c.blocked = true, false
			c.flushLocked()
		}
	}
	return false
}

func (c *Conn) backlogLocked() *backlog {
	if c.unsent == nil {
		c.unsent = newBacklog()
	}
	return c.unsent
}

// pushBytes is how long a backlog must be to be sent at once, and not at the end of the batch, which
// may have any number of writes. So many bytes are worth a system call.
const pushBytes = 64 << 10

// addLocked adds bytes to the backlog. The socket is tried before they count.
func (c *Conn) addLocked(shared *engpool.Buffer, p ...[]byte) {
	c.backlogLocked().add(shared, 0, p...)
	if c.unsent.bytes >= pushBytes {
		c.flushLocked()
	}
	if c.unsent != nil {
		c.crowdedLocked()
	}
}

// crowdedLocked counts what waits, and stops the reading if it is too much.
func (c *Conn) crowdedLocked() {
	if c.blocked {
		c.unsent.count(c.loop.counts)
	}
	if c.unsent.bytes > c.loop.server.config.WriteHighWaterMark && c.asked.Load()&askRoom == 0 {
		c.asked.Or(askRoom)
	}
}

// Unsent returns how many of the bytes that were written wait in memory, since the socket has not taken
// them. Up to 8 KiB that a callback has written don't count before it has returned.
//
// If it returns more than WriteHighWaterMark, and the handler is a [WritableHandler], Writable is
// called later, or Close. So to write no faster than the peer reads, stop when it does, and go on in
// Writable.
func (c *Conn) Unsent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent == nil {
		return 0
	}
	c.crowdedLocked() // for the promise: the writer may not have come to it
	return c.unsent.bytes
}

// owe begins the output of a new connection with bytes that its previous owner has written, and with
// the end of the stream if ends is set. The first leave sends them.
func (c *Conn) owe(unsent *backlog, ends bool) {
	if unsent != nil {
		c.unsent = unsent
		c.crowdedLocked()
	}
	if ends {
		c.refusing = true
		c.asked.Or(askShut)
	}
}

// sendCollectedLocked ends the collecting, and sends what was collected, and the backlog.
func (c *Conn) sendCollectedLocked() {
	c.collecting = false
	collected := c.loop.collected
	c.loop.collected = collected[:0]
	switch {
	case len(collected) == 0:
		c.flushLocked()
	case c.sending || c.unsent != nil:
		c.addLocked(nil, collected)
		c.flushLocked()
	default:
		c.sendLocked(nil, len(collected), collected)
	}
}

// sendLocked sends p, size bytes, and puts the rest into the backlog, which is empty.
func (c *Conn) sendLocked(shared *engpool.Buffer, size int, p ...[]byte) {
	n, err, full := 0, error(nil), false
	if len(p) <= partsPerSend { // or they may be more than a system call takes
		var all [partsPerSend][]byte // a copy, which the call changes
		n, err, full = c.trySendLocked(append(all[:0], p...))
		if c.asked.Load()&(askEnd|askShut) != 0 {
			c.loop.remind(c, false) // it may have found that a goroutine sends
		}
	}
	if err != nil {
		c.sendFailedLocked(err)
		return
	}
	if n < size {
		if c.asked.Load()&askClose != 0 {
			c.dropUnsentLocked(size - n) // or bytes that were written later would follow a gap
			return
		}
		c.backlogLocked().addFront(shared, n, p...)
		c.blocked = full
		c.crowdedLocked()
	}
	c.flushLocked()
}

// trySendLocked makes the system call, without mu. full says that an event will come.
func (c *Conn) trySendLocked(v net.Buffers) (n int, err error, full bool) {
	c.sending, c.roomEvent = true, false
	c.mu.Unlock()
	if len(v) == 1 {
		n, err = c.sock.tryWrite(v[0])
	} else {
		n, err = c.sock.tryWriteBuffers(v)
	}
	c.mu.Lock()
	c.sending = false
	if n > 0 {
		c.touchWritten()
	}
	return n, err, !c.roomEvent
}

// flushMax is how much of a backlog is sent in a row before other connections of the loop have their
// turn.
const flushMax = 512 << 10

// flushLocked sends the backlog, as far as the socket takes it.
func (c *Conn) flushLocked() {
	for sent := 0; c.unsent != nil && !c.sending && !c.blocked; {
		if sent > flushMax {
			c.loop.remind(c, false)
			return
		}
		b := c.unsent
		var slices [partsPerSend][]byte
		v := b.front(slices[:0])
		want := 0
		for _, p := range v {
			want += len(p)
		}
		c.flushing = true
		n, err, full := c.trySendLocked(v)
		c.flushing = false
		switch {
		case c.unsent != b: // it was given up meanwhile
			b.release()
			return
		case err != nil:
			c.sendFailedLocked(err)
			return
		}
		b.drop(n)
		c.tookLocked(n)
		sent += n
		c.blocked = n < want && full
		if b.bytes == 0 {
			c.unsent = nil
			b.release()
		} else if c.blocked {
			b.count(c.loop.counts)
		}
		c.roomyLocked()
	}
}

// roomyLocked makes the loop go on with what it put off until the peer has taken enough.
func (c *Conn) roomyLocked() {
	asked := c.asked.Load()
	if asked&askRoom != 0 && (c.unsent == nil || c.unsent.bytes < c.loop.server.config.WriteHighWaterMark/2) {
		if c.loop.writable != nil {
			c.asked.Or(askTellNow)
		}
		c.asked.And(^askRoom)
		c.loop.remind(c, false)
	} else if c.unsent == nil && asked&(askEnd|askShut|askTell) != 0 {
		c.loop.remind(c, false)
	}
}

// tellWritable calls Writable, on the loop, if there is room again.
func (c *Conn) tellWritable() {
	if c.asked.Load()&(askTell|askTellNow) == 0 {
		return
	}
	c.mu.Lock()
	asked, due := c.asked.Load(), uint32(0)
	if asked&askRoom == 0 { // or others have written too much again, and Writable comes later
		due = asked & askTellNow
	}
	if c.unsent == nil {
		due |= asked & askTell
	}
	c.asked.And(^(due | askTellNow)) // for what is written from here on Writable is called again
	tell := due != 0 && !c.refusing
	c.mu.Unlock()
	if tell {
		c.call("Writable", func() { c.loop.writable.Writable(c) })
	}
}

// sendFailedLocked ends the connection.
func (c *Conn) sendFailedLocked(err error) {
	c.dropUnsentLocked(0)
	c.endLocked(askClose, err)
}

// dropUnsentLocked drops the backlog, besides so many bytes that didn't come to it. If it is being
// sent, the sender releases it. Nothing may follow what was dropped, not even the end of a stream:
// a layer's, or the socket's, which is reset.
func (c *Conn) dropUnsentLocked(besides int) {
	c.cutLayerLocked()
	b := c.unsent
	c.unsent = nil
	if b != nil {
		besides += b.bytes
	}
	if besides > 0 {
		c.extrasLocked().dropped += besides
	}
	if b != nil && !c.flushing {
		b.release()
	}
}

// onRoom is called when the socket may have room.
func (c *Conn) onRoom() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roomEvent = true
	c.blocked = false
	c.flushLocked()
}
