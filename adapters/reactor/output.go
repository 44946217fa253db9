package reactor

import (
	"net"
	"runtime"

	engpool "github.com/percore/percore/internal/pool"
	"github.com/percore/percore/pool"
)

// The bytes that a connection has yet to send are in its backlog, and in Loop.collected while its
// handler runs. One goroutine at a time sends, without a lock: the loop, or the caller of Write if the
// loop is not at work.
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

// output is a Conn as what sends bytes to its peer, under mu.
type output Conn

// collectedMax is how much is collected while a handler runs. A write that would exceed it is sent at
// once, with everything before it, and is not copied.
const collectedMax = 8 << 10

// Write sends p, which it does not keep, to the peer. It does not block: bytes that the socket does
// not take wait in memory. While the handler runs, or other callbacks of the loop, writes are
// collected, and sent together afterwards.
//
// It takes all of p or nothing. It fails with a [net.OpError] of [net.ErrClosed] once the connection
// is closed or closing, and of [ErrWriteBufferFull] if, after the socket was tried, more than
// WriteHardLimit bytes would wait; if no bytes wait, p may have any length. A refused Write ends the
// connection, unless the handler is a [WritableHandler]. An error in sending always does.
func (c *Conn) Write(p []byte) (int, error) {
	return (*output)(c).write(c.loop.writable != nil, nil, p)
}

// WriteBuffers is Write of several slices, one after the other, such as a header and a body: no other
// goroutine's bytes come in between. It takes all slices or nothing, and keeps neither p nor its
// slices.
func (c *Conn) WriteBuffers(p ...[]byte) (int, error) {
	return (*output)(c).write(c.loop.writable != nil, nil, p...)
}

// WriteShared writes b's bytes without copying them, for a message that goes to many connections: a
// connection that has to wait for its peer holds a reference to b. The bytes must not be changed
// afterwards. The caller keeps its own reference. WriteShared fails as Write does.
func (c *Conn) WriteShared(b *pool.Buffer) error {
	if b == nil {
		return errNil("WriteShared", "*pool.Buffer")
	}
	_, err := (*output)(c).write(c.loop.writable != nil, (*engpool.Buffer)(b), b.Bytes())
	return err
}

// write writes all of p. If it is refused the connection ends, unless told is set: the program learns of
// it. shared, if not nil, is the buffer of the bytes, which are then not copied.
func (o *output) write(told bool, shared *engpool.Buffer, p ...[]byte) (size int, err error) {
	for _, q := range p {
		size += len(q)
	}
	if o.isLayered {
		return o.writeLayered(told, size, p)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.admitLocked(size, told); err != nil {
		return 0, o.sock.opError("write", err)
	}
	o.putLocked(shared, size, p...)
	return size, nil
}

// putLocked sends p, size bytes, or puts them where they are sent soon.
func (o *output) putLocked(shared *engpool.Buffer, size int, p ...[]byte) {
	l := o.loop
	switch {
	case size == 0:
	case o.sending || o.unsent != nil || !o.collecting && l.remind((*Conn)(o), true):
		o.addLocked(shared, p...)
	case !o.collecting:
		o.sendLocked(shared, size, p...)
	case shared != nil:
		o.backlogLocked().append(l.collected)
		l.collected = l.collected[:0]
		o.addLocked(shared, p...)
	case len(l.collected)+size <= collectedMax:
		for _, q := range p {
			l.collected = append(l.collected, q...)
		}
	default:
		collected := l.collected
		l.collected = nil // the handler of another connection may run before it is sent
		var all [partsPerSend][]byte
		o.sendLocked(nil, len(collected)+size, append(append(all[:0], collected), p...)...)
		if o.collecting && l.collected == nil {
			l.collected = collected[:0]
		}
	}
}

// admitLocked returns why n more bytes can't be written, or nil. See write for told.
func (o *output) admitLocked(n int, told bool) error {
	if o.unsent != nil && n > 0 && o.fullLocked(n) {
		o.loop.counts.Add(countRefusedWrites, 1)
		if !told {
			(*Conn)(o).endLocked(askClose, ErrWriteBufferFull)
		} else if o.loop.writable != nil {
			o.asked.Or(askTell)
		}
		return ErrWriteBufferFull
	}
	if o.refusing {
		return net.ErrClosed
	}
	return nil
}

// fullLocked reports whether n more bytes would be too many. Before that it sends as much of the
// backlog as the socket takes, even if the socket was full, since its event may come after tasks of
// the loop. If another goroutine is sending, it waits for that call, which doesn't block.
func (o *output) fullLocked(n int) bool {
	for tried := false; !o.refusing && o.unsent != nil && o.unsent.bytes+n > o.loop.server.config.WriteHardLimit; {
		switch {
		case o.sending:
			o.mu.Unlock()
			runtime.Gosched()
			o.mu.Lock()
		case o.blocked && tried:
			return true
		default:
			tried, o.blocked = true, false
			o.flushLocked()
		}
	}
	return false
}

func (o *output) backlogLocked() *backlog {
	if o.unsent == nil {
		o.unsent = newBacklog()
	}
	return o.unsent
}

// pushBytes is how long a backlog must be to be sent at once, and not at the end of the batch, which
// may have any number of writes. That many bytes are worth a system call.
const pushBytes = 64 << 10

// addLocked adds bytes to the backlog. The socket is tried before they count.
func (o *output) addLocked(shared *engpool.Buffer, p ...[]byte) {
	o.backlogLocked().add(shared, 0, p...)
	if o.unsent.bytes >= pushBytes {
		o.flushLocked()
	}
	if o.unsent != nil {
		o.crowdedLocked()
	}
}

// crowdedLocked counts what waits, and stops the reading if it is too much.
func (o *output) crowdedLocked() {
	if o.blocked {
		o.unsent.count(o.loop.counts)
	}
	if o.unsent.bytes > o.loop.server.config.WriteHighWaterMark && o.asked.Load()&askRoom == 0 {
		o.asked.Or(askRoom)
	}
}

// Unsent returns how many written bytes wait in memory because the socket has not taken them. Up to 8
// KiB written by a callback don't count until it has returned.
//
// If it returns more than WriteHighWaterMark, and the handler is a [WritableHandler], Writable is
// called later, or Close. So to write no faster than the peer reads, stop at that point, and go on in
// Writable.
func (c *Conn) Unsent() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsent == nil {
		return 0
	}
	(*output)(c).crowdedLocked() // for the promise: the writer may not have come to it
	return c.unsent.bytes
}

// owe begins the output of a new connection with bytes from its previous owner, and with the end of
// the stream if ends is set. The first leave sends them.
func (o *output) owe(unsent *backlog, ends bool) {
	if unsent != nil {
		o.unsent = unsent
		o.crowdedLocked()
	}
	if ends {
		o.refusing = true
		o.asked.Or(askShut)
	}
}

// sendCollectedLocked ends the collecting, and sends what was collected, and the backlog.
func (o *output) sendCollectedLocked() {
	o.collecting = false
	collected := o.loop.collected
	o.loop.collected = collected[:0]
	switch {
	case len(collected) == 0:
		o.flushLocked()
	case o.sending || o.unsent != nil:
		o.addLocked(nil, collected)
		o.flushLocked()
	default:
		o.sendLocked(nil, len(collected), collected)
	}
}

// sendLocked sends p, size bytes, and puts the rest into the backlog, which is empty.
func (o *output) sendLocked(shared *engpool.Buffer, size int, p ...[]byte) {
	n, err, full := 0, error(nil), false
	if len(p) <= partsPerSend { // or they may be more than a system call takes
		var all [partsPerSend][]byte // a copy, which the call changes
		n, err, full = o.trySendLocked(append(all[:0], p...))
		if o.asked.Load()&(askEnd|askShut) != 0 {
			o.loop.remind((*Conn)(o), false) // it may have found that a goroutine sends
		}
	}
	if err != nil {
		o.failedLocked(err)
		return
	}
	if n < size {
		if o.asked.Load()&askClose != 0 {
			o.dropLocked(size - n) // or bytes that were written later would follow a gap
			return
		}
		o.backlogLocked().addFront(shared, n, p...)
		o.blocked = full
		o.crowdedLocked()
	}
	o.flushLocked()
}

// trySendLocked makes the system call, without mu. full says that an event will come.
func (o *output) trySendLocked(v net.Buffers) (n int, err error, full bool) {
	o.sending, o.roomEvent = true, false
	o.mu.Unlock()
	if len(v) == 1 {
		n, err = o.sock.tryWrite(v[0])
	} else {
		n, err = o.sock.tryWriteBuffers(v)
	}
	o.mu.Lock()
	o.sending = false
	if n > 0 {
		(*clock)(o).touchWritten()
	}
	return n, err, !o.roomEvent
}

// flushMax is how much of a backlog is sent before other connections of the loop have their turn.
const flushMax = 512 << 10

// flushLocked sends as much of the backlog as the socket takes.
func (o *output) flushLocked() {
	for sent := 0; o.unsent != nil && !o.sending && !o.blocked; {
		if sent > flushMax {
			o.loop.remind((*Conn)(o), false)
			return
		}
		b := o.unsent
		var slices [partsPerSend][]byte
		v := b.front(slices[:0])
		want := 0
		for _, p := range v {
			want += len(p)
		}
		o.flushing = true
		n, err, full := o.trySendLocked(v)
		o.flushing = false
		switch {
		case o.unsent != b: // it was given up meanwhile
			b.release()
			return
		case err != nil:
			o.failedLocked(err)
			return
		}
		b.drop(n)
		(*clock)(o).tookLocked(n)
		sent += n
		o.blocked = n < want && full
		if b.bytes == 0 {
			o.unsent = nil
			b.release()
		} else if o.blocked {
			b.count(o.loop.counts)
		}
		o.roomyLocked()
	}
}

// roomyLocked makes the loop go on with what it put off until the peer has taken enough.
func (o *output) roomyLocked() {
	asked := o.asked.Load()
	if asked&askRoom != 0 && (o.unsent == nil || o.unsent.bytes < o.loop.server.config.WriteHighWaterMark/2) {
		if o.loop.writable != nil {
			o.asked.Or(askTellNow)
		}
		o.asked.And(^askRoom)
		o.loop.remind((*Conn)(o), false)
	} else if o.unsent == nil && asked&(askEnd|askShut|askTell) != 0 {
		o.loop.remind((*Conn)(o), false)
	}
}

// tellWritable calls Writable if it is due.
func (o *output) tellWritable() {
	if o.asked.Load()&(askTell|askTellNow) == 0 {
		return
	}
	o.mu.Lock()
	asked, due := o.asked.Load(), uint32(0)
	if asked&askRoom == 0 { // or others have written too much again, and Writable comes later
		due = asked & askTellNow
	}
	if o.unsent == nil {
		due |= asked & askTell
	}
	o.asked.And(^(due | askTellNow)) // for what is written from here on Writable is called again
	tell := due != 0 && !o.refusing
	o.mu.Unlock()
	if tell {
		(*Conn)(o).call("Writable", func() { o.loop.writable.Writable((*Conn)(o)) })
	}
}

func (o *output) failedLocked(err error) {
	o.dropLocked(0)
	(*Conn)(o).endLocked(askClose, err)
}

// dropLocked drops the backlog, and counts besides more bytes that never got there. If the backlog is
// being sent, the sender releases it. Nothing may follow dropped bytes: the layer is cut, and the socket
// will be reset.
func (o *output) dropLocked(besides int) {
	(*Conn)(o).cutLayerLocked()
	b := o.unsent
	o.unsent = nil
	if b != nil {
		besides += b.bytes
	}
	if besides > 0 {
		(*Conn)(o).extrasLocked().dropped += besides
	}
	if b != nil && !o.flushing {
		b.release()
	}
}

// awaitSenderLocked waits for another goroutine's system call, which does not block.
func (o *output) awaitSenderLocked() {
	for o.sending {
		o.mu.Unlock()
		runtime.Gosched()
		o.mu.Lock()
	}
}

func (o *output) allSent() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.unsent == nil && !o.sending
}

// onRoom is called when the socket may have room.
func (o *output) onRoom() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.roomEvent = true
	o.blocked = false
	o.flushLocked()
}
