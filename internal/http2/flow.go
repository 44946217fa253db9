package http2

import "encoding/binary"

// The windows of RFC 9113, section 5.2.
//
// Receiving. For the connection, at any time,
//
//	avail + unsent + unread of all streams + coming = Config.ConnWindowBytes
//
// where avail is what the peer may send, unsent is credit that was given back but not announced
// yet, unread is what handlers have not read, and coming is the part of a DATA frame that has not
// arrived yet. When a stream ends, its unread bytes go back at once, and so does DATA that no stream
// takes. So the sum holds whenever a stream ends. The same is true of a stream, except for the
// bytes that were discarded. With Config.CreditOnReceipt unread is 0: only the stream's credit waits.
//
// Sending. The window of a stream is the peer's initial window plus the stream's delta, so a new
// initial window changes all streams without visiting them. The window may be negative.

// An inflow is the window for data from the peer.
type inflow struct {
	avail  int32
	unsent int32
}

// take takes n bytes, if the peer was allowed to send them, and reports whether it was.
func (f *inflow) take(n int) bool {
	if n > int(f.avail) {
		return false
	}
	f.avail -= int32(n)
	return true
}

// refund gives n bytes back, and returns how many to announce now: nothing until the unsent bytes
// are a quarter of the whole window, or as many as the peer has left.
func (f *inflow) refund(n int, whole int32) int32 {
	f.unsent += int32(n)
	if f.unsent == 0 || f.unsent < whole/4 && f.unsent < f.avail {
		return 0
	}
	f.avail += f.unsent
	send := f.unsent
	f.unsent = 0
	return send
}

// An outflow has the windows for data to the peer.
type outflow struct {
	deltaMost int64 // at least the largest delta of a stream
	conn      int32 // window of the connection
	initial   int32 // SETTINGS_INITIAL_WINDOW_SIZE
}

// of returns a stream's own window, whatever the connection's is.
func (o *outflow) of(st *Stream) int64 { return int64(o.initial) + st.delta }

// take takes n bytes, which both windows have.
func (o *outflow) take(st *Stream, n int) {
	o.conn -= int32(n)
	st.delta -= int64(n)
}

// refund gives n bytes back to the connection.
func (c *Conn) refund(n int) {
	if n := c.recv.refund(n, c.cfg.ConnWindowBytes); n > 0 {
		c.writer.windowUpdate(0, n)
	}
}

// Unread returns how many bytes of bodies the peer has sent without getting the connection's credit
// back. It is 0 if all bodies were read.
func (c *Conn) Unread() int {
	return int(max(c.cfg.ConnWindowBytes, initialWindowBytes) - c.recv.avail - c.recv.unsent)
}

// Consumed gives the peer credit for n bytes of a body that the handler has read. It does nothing for a
// stream that has ended, whose credit was given back then.
func (c *Conn) Consumed(st *Stream, n int) {
	if c.Discarded(st, n); st.state != open && st.state != halfClosedLocal {
		return // the peer sends nothing more
	}
	if n := st.recv.refund(n, c.cfg.StreamWindowBytes); n > 0 {
		c.writer.windowUpdate(st.id, n)
	}
}

// Discarded is like Consumed for bytes of a body that no handler will read: the connection gets credit,
// but not the stream, so the peer stops.
func (c *Conn) Discarded(st *Stream, n int) {
	if n > int(st.unread) {
		n = int(st.unread) // the stream has ended since
	}
	st.unread -= int32(n)
	c.refund(n)
}

// Window returns how many bytes of DATA can be sent on a stream now: none if it is not positive.
func (c *Conn) Window(st *Stream) int { return int(min(c.send.of(st), int64(c.send.conn))) }

// setInitialWindow applies the peer's SETTINGS_INITIAL_WINDOW_SIZE, unless the window of a stream would
// be too wide.
func (c *Conn) setInitialWindow(v int32) verdict {
	o := &c.send
	if int64(v)+o.deltaMost > maxWindowBytes {
		// deltaMost is a bound. To find the exact value we must visit the streams. A peer can cause
		// that only with a WINDOW_UPDATE on a stream that has ended since, not with SETTINGS alone.
		o.deltaMost = 0
		c.Each(func(st *Stream) { o.deltaMost = max(o.deltaMost, st.delta) })
		if int64(v)+o.deltaMost > maxWindowBytes {
			return connError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE makes the window of a stream too large")
		}
	}
	before := o.initial
	if o.initial = v; v < before {
		return c.budgets.spendIdle(budget(c.Senders() / sendersPerShrink))
	}
	return verdict{}
}

func (c *Conn) windowUpdate(f *Frame) verdict {
	n := int64(binary.BigEndian.Uint32(f.payload) & maxID)
	if v := c.budgets.spendIdle(1); v.scope != fine {
		return v
	}
	if f.id == 0 {
		if int64(c.send.conn)+n > maxWindowBytes {
			return connError(FlowControlError, "WINDOW_UPDATE makes the window of the connection too large")
		}
		c.send.conn += int32(n)
		return verdict{}
	}
	st, v := c.receive(f.id, gotWindowUpdate)
	if st == nil || v.scope != fine {
		return v
	}
	if c.send.of(st)+n > maxWindowBytes {
		return streamError(FlowControlError, "WINDOW_UPDATE makes the window of the stream too large")
	}
	st.delta += n
	c.send.deltaMost = max(c.send.deltaMost, st.delta)
	c.schedule.windowOpened(st, &c.send)
	return verdict{}
}
