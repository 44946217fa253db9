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
// ends the connection, unless the handler is a [RoomHandler]. An error in sending always
// does.
func (c *Conn) Write(p []byte) (int, error) {
	if c.isLayered {
		return c.writeLayered(c.loop.roomer != nil, p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.admitLocked(len(p), c.loop.roomer != nil); err != nil {
		return 0, c.sock.opError("write", err)
	}
	c.putLocked(p)
	return len(p), nil
}

// putLocked sends p, or puts it where it is sent soon.
func (c *Conn) putLocked(p []byte) {
	switch {
	case len(p) == 0:
	case c.sending || c.unsent != nil:
		c.backlogLocked().append(p)
		c.addedLocked()
	case c.collecting:
		if l := c.loop; len(l.collected)+len(p) <= collectedMax {
			l.collected = append(l.collected, p...)
		} else {
			collected := l.collected
			l.collected = nil // the handler of another connection may run before it is sent
			c.sendLocked(collected, p)
			if c.collecting && l.collected == nil {
				l.collected = collected[:0]
			}
		}
	case c.loop.remind(c, true):
		c.backlogLocked().append(p)
		c.addedLocked()
	default:
		c.sendLocked(p, nil)
	}
}

// WriteShared writes b's bytes without copying them, for a message that goes to many
// connections: a connection that has to wait for its peer holds a reference to b. The bytes must
// not be changed any more. The caller keeps its own reference. It fails as Write does.
func (c *Conn) WriteShared(b *pool.Buffer) error {
	if b == nil {
		return errNil("WriteShared", "*pool.Buffer")
	}
	return c.writeShared((*engpool.Buffer)(b), c.loop.roomer != nil)
}

// writeShared is WriteShared. A refused write ends the connection, unless told says that the
// program learns of it.
func (c *Conn) writeShared(b *engpool.Buffer, told bool) error {
	if c.isLayered {
		_, err := c.writeLayered(told, b.Bytes())
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := b.Bytes()
	if err := c.admitLocked(len(p), told); err != nil {
		return c.sock.opError("write", err)
	}
	switch {
	case len(p) == 0:
	case c.sending || c.unsent != nil:
		c.backlogLocked().appendShared(b, p)
		c.addedLocked()
	case c.collecting:
		l := c.loop
		if len(l.collected) > 0 {
			c.backlogLocked().append(l.collected)
			l.collected = l.collected[:0]
		}
		c.backlogLocked().appendShared(b, p)
		c.addedLocked()
	case c.loop.remind(c, true):
		c.backlogLocked().appendShared(b, p)
		c.addedLocked()
	default:
		c.sendSharedLocked(b, p)
	}
	return nil
}

// admitLocked returns why n more bytes can't be written. If too many wait, the
// connection ends, unless told is set, and Room will be called if there is one.
func (c *Conn) admitLocked(n int, told bool) error {
	if c.unsent != nil && n > 0 && c.fullLocked(n) {
		c.loop.counts.Add(countRefusedWrites, 1)
		if !told {
			c.endLocked(askClose, ErrWriteBufferFull)
		} else if c.loop.roomer != nil {
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

// addedLocked deals with bytes that were added to the backlog: the socket is tried before they count.
func (c *Conn) addedLocked() {
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
// If it returns more than WriteHighWaterMark, and the handler is a [RoomHandler], Room is called later,
// or Close. So to write no faster than the peer reads, stop when it does, and go on in Room.
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

// sendCollectedLocked ends the collecting, and sends what was collected, or the backlog.
func (c *Conn) sendCollectedLocked() {
	c.collecting = false
	collected := c.loop.collected
	c.loop.collected = collected[:0]
	if len(collected) > 0 {
		c.sendLocked(collected, nil)
	} else {
		c.flushLocked()
	}
}

// sendLocked sends p, and then q, and puts the rest into the backlog, which is empty.
func (c *Conn) sendLocked(p, q []byte) {
	if c.sending || c.unsent != nil {
		c.backlogLocked().append(p)
		c.backlogLocked().append(q)
		c.flushLocked()
		if c.unsent != nil {
			c.crowdedLocked()
		}
		return
	}
	n, err, full := c.trySendLocked(p, q)
	if err != nil {
		c.sendFailedLocked(err)
		return
	}
	if n < len(p)+len(q) {
		if c.asked.Load()&askClose != 0 {
			c.dropUnsentLocked(len(p) + len(q) - n) // or bytes that were written later would follow a gap
			return
		}
		b := c.backlogLocked()
		if n < len(p) {
			b.prepend(p[n:], q)
		} else {
			b.prepend(q[n-len(p):], nil)
		}
		c.blocked = full
		c.crowdedLocked()
	}
	c.flushLocked()
}

// sendSharedLocked is sendLocked for the bytes of a shared buffer.
func (c *Conn) sendSharedLocked(b *engpool.Buffer, p []byte) {
	n, err, full := c.trySendLocked(p, nil)
	if err != nil {
		c.sendFailedLocked(err)
		return
	}
	if n < len(p) {
		if c.asked.Load()&askClose != 0 {
			c.dropUnsentLocked(len(p) - n)
			return
		}
		c.backlogLocked().prependShared(b, p[n:])
		c.blocked = full
		c.crowdedLocked()
	}
	c.flushLocked()
}

// trySendLocked makes the system call, without mu. full says that an event will come. more, of which
// there is seldom any, goes behind q.
func (c *Conn) trySendLocked(p, q []byte, more ...[]byte) (n int, err error, full bool) {
	c.sending, c.roomEvent = true, false
	c.mu.Unlock()
	if len(q) == 0 && len(more) == 0 {
		n, err = c.sock.tryWrite(p)
	} else {
		n, err = c.sock.tryWriteBuffers(append(net.Buffers{p, q}, more...))
	}
	c.mu.Lock()
	c.sending = false
	if n > 0 {
		c.touchWritten()
	}
	if c.asked.Load()&(askEnd|askShut) != 0 {
		c.loop.remind(c, false) // it may have found that a goroutine sends
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
		c.sending, c.flushing, c.roomEvent = true, true, false
		c.mu.Unlock()
		n, err := c.sendParts(v)
		c.mu.Lock()
		c.sending, c.flushing = false, false
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
		if n > 0 {
			c.touchWritten()
		}
		c.blocked = n < want && !c.roomEvent
		if b.bytes == 0 {
			c.unsent = nil
			b.release()
		} else if c.blocked {
			b.count(c.loop.counts)
		}
		c.roomyLocked()
	}
}

func (c *Conn) sendParts(v net.Buffers) (int, error) {
	if len(v) == 1 {
		return c.sock.tryWrite(v[0])
	}
	return c.sock.tryWriteBuffers(v)
}

// roomyLocked makes the loop go on with what it put off until the peer has taken enough.
func (c *Conn) roomyLocked() {
	asked := c.asked.Load()
	if asked&askRoom != 0 && (c.unsent == nil || c.unsent.bytes < c.loop.server.config.WriteHighWaterMark/2) {
		if c.loop.roomer != nil {
			c.asked.Or(askTellNow)
		}
		c.asked.And(^askRoom)
		c.loop.remind(c, false)
	} else if c.unsent == nil && asked&(askEnd|askShut|askTell) != 0 {
		c.loop.remind(c, false)
	}
}

// tellRoom calls Room, on the loop, if there is room again.
func (c *Conn) tellRoom() {
	if c.asked.Load()&(askTell|askTellNow) == 0 {
		return
	}
	c.mu.Lock()
	asked, due := c.asked.Load(), uint32(0)
	if asked&askRoom == 0 { // or others have written too much again, and Room comes later
		due = asked & askTellNow
	}
	if c.unsent == nil {
		due |= asked & askTell
	}
	c.asked.And(^(due | askTellNow)) // for what is written from here on Room is called again
	tell := due != 0 && !c.refusing
	c.mu.Unlock()
	if tell {
		c.call("Room", func() { c.loop.roomer.Room(c) })
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
