package reactor

import (
	"fmt"
	"io"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/pool"
)

// The bytes that Data doesn't use are in Conn.unused, which is nil if there are none. A few of them
// are copied to the front of the loop's buffer when more have come, so that each recv(2) has room for
// a lot; if they are many they stay where they are, and more are read after them.

// input is a Conn as what reads from its peer, on the loop.
type input Conn

// readsPerEvent is how often in a row a connection is read, 64 KiB each at most, before others of its
// loop have their turn.
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
func (in *input) read() {
	if asked := in.asked.Load(); asked&askOffer != 0 && asked&askPause == 0 {
		in.asked.And(^askOffer)
		in.offered = false
	}
	for reads := 0; reads < readsPerEvent; {
		switch {
		case in.stopped():
			return
		case in.unused != nil && !in.offered: // first, or the end of the stream might be found before
			in.offer()
			continue
		case in.inputEnded:
			return
		}
		n, err := in.readOnce()
		if err != nil {
			in.failed(err)
		}
		if n == 0 {
			return
		}
		reads++
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.loop.remind((*Conn)(in), false)
}

func (in *input) stopped() bool {
	asked := in.asked.Load()
	return in.phase != open || asked&stopsReading != 0 || asked&askSender != 0 && in.loop.server.broadcasts.hold((*Conn)(in))
}

// readOnce makes one system call and calls Data with its bytes, if there are any.
func (in *input) readOnce() (int, error) {
	kept := 0
	if in.unused != nil {
		if kept = len(in.unused.Bytes()); kept > fewBytes {
			return in.readBehind(kept)
		}
	}
	p := in.loop.readBuffer()
	n, err := in.tryRead(p[kept:])
	if n == 0 {
		return 0, err
	}
	(*clock)(in).touchRead()
	if kept > 0 {
		copy(p, in.unused.Bytes())
	}
	in.keep(in.feed(p[:kept+n]), kept+n)
	return n, err
}

// readBehind is readOnce into the buffer of the unused bytes, which it makes larger if it is full.
func (in *input) readBehind(kept int) (int, error) {
	b := in.unused
	if kept == cap(b.Bytes()) {
		b = pool.Get(2 * kept)
		copy(b.Bytes(), in.unused.Bytes())
		in.unused.Release()
		in.unused = b
	}
	room := max(in.loop.server.config.ReadBufferMax, kept+1)
	b.SetLen(min(cap(b.Bytes()), room))
	n, err := in.tryRead(b.Bytes()[kept:])
	b.SetLen(kept + n)
	if n > 0 {
		(*clock)(in).touchRead()
		in.offer()
	}
	return n, err
}

func (in *input) offer() {
	p := in.unused.Bytes()
	in.keep(in.feed(p), len(p))
}

// keep keeps the rest of so many bytes that Data was called with.
func (in *input) keep(left []byte, of int) {
	if in.phase != open { // it was hijacked
		in.drop()
		return
	}
	had := in.unused != nil
	switch {
	case len(left) == 0:
		in.drop()
	case had && fits(in.unused, len(left)):
		in.unused.SetLen(len(left))
		copy(in.unused.Bytes(), left) // which may be its own end
	default:
		b := pool.Get(len(left))
		copy(b.Bytes(), left)
		in.drop()
		in.unused = b
	}
	if !had || len(left) < of {
		(*clock)(in).markKept()
	}
	if in.offered && len(left) >= in.loop.server.config.ReadBufferMax && in.asked.Load()&(askPause|askOffer) == 0 {
		(*Conn)(in).end(askClose, ErrReadBufferFull)
	}
}

// fits reports whether so many bytes stay in a buffer: see keptSlack.
func fits(b *pool.Buffer, n int) bool {
	size := cap(b.Bytes())
	return n <= size && size <= max(keptSlack, 4*n)
}

func (in *input) drop() {
	if in.unused != nil {
		in.unused.Release()
		in.unused = nil
	}
}

// feed calls Data with p, and again with the rest, until it uses nothing or reading has to stop. It
// returns the rest.
func (in *input) feed(p []byte) (left []byte) {
	l := in.loop
	start := monotime.Now()
	each := l.server.config.SlowCallback > 0
	in.offered = false
	calls := int64(0)
	for len(p) > 0 && !in.stopped() {
		calls++
		made := l.server.broadcasts.made.Load()
		used := in.data(p)
		if l.server.broadcasts.made.Load() != made { // by Data; or by others, and then c waits with them
			in.asked.Or(askSender)
		}
		if each {
			start = l.timed((*Conn)(in), "Data", start)
		}
		if used == 0 {
			in.offered = true
			break
		}
		p = p[used:]
	}
	l.feeding, l.fed = nil, nil
	l.counts.Add(countDataCalls, calls)
	if !each {
		l.timed((*Conn)(in), "Data", start)
	}
	return p
}

func (in *input) data(p []byte) (used int) {
	returned := false
	defer func() {
		if !returned {
			in.spoiled()
			(*Conn)(in).failed("Data", recover())
			used = len(p)
		}
	}()
	in.loop.feeding, in.loop.fed = p, (*Conn)(in)
	used = in.loop.handler.Data((*Conn)(in), p)
	if uint(used) > uint(len(p)) {
		panic(fmt.Sprintf("Data returned that it has used %d of %d bytes", used, len(p)))
	}
	returned = true
	return used
}

// spoiled leaves the memory that Data had to the garbage collector: a Data that did not return may have
// passed it on.
func (in *input) spoiled() {
	in.loop.input, in.loop.feeding, in.loop.fed = nil, nil, nil
	if in.unused != nil {
		in.unused.Discard()
		in.unused = nil
	}
}

// failed deals with the end of the peer's stream, or an error.
func (in *input) failed(err error) {
	if err == io.ErrUnexpectedEOF { // in a record of TLS: the answers to what came before are sent
		in.inputEnded = true
		(*Conn)(in).end(askEnd, err)
		return
	}
	if err != io.EOF {
		(*Conn)(in).end(askClose, err)
		return
	}
	in.inputEnded = true
	if e := in.loop.ender; e != nil {
		in.ended(e)
		return
	}
	if in.unused != nil {
		err = io.ErrUnexpectedEOF
	}
	(*Conn)(in).end(askEnd, err)
}

func (in *input) ended(e EndHandler) {
	l := in.loop
	if in.unused != nil {
		l.feeding = in.unused.Bytes()
	}
	l.fed = (*Conn)(in)
	returned := false
	defer func() {
		l.feeding, l.fed = nil, nil
		if !returned {
			in.spoiled()
		}
	}()
	(*Conn)(in).call("End", func() {
		e.End((*Conn)(in), l.feeding)
		returned = true
	})
	if returned {
		in.drop()
		(*clock)(in).markKept() // no message is begun any more: ReadTimeout is over
	}
}
