package http2

import "encoding/binary"

// The windows of RFC 9113, section 5.2.
//
// Receiving. For the connection, at any time,
//
//	avail + unsent + held by all streams + coming = Config.ConnWindowBytes
//
// where avail is what the peer may send, unsent is credit that was given back but not announced
// yet, held is what handlers have not read, and coming is the part of a DATA frame that has not
// arrived yet. When a stream ends, its held bytes go back at once, and so does DATA that no stream
// takes. So the sum holds whenever a stream ends. The same is true of a stream, except for the
// bytes that were discarded. With Config.CreditOnReceipt held is 0: only the stream's credit waits.
//
// Sending. The window of a stream is the peer's initial window plus the stream's delta, so a new
// initial window changes all streams without visiting them. The window may be negative.

// An inflow is the window for data from the peer.
type inflow struct {
	avail  int32
	unsent int32
}

// take takes n bytes, and reports whether the peer was allowed to send them.
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

// appendWindowUpdate announces n bytes.
func (c *Conn) appendWindowUpdate(id uint32, n int32) {
	c.control(typeWindowUpdate, 0, id, 4)
	c.out = binary.BigEndian.AppendUint32(c.out, uint32(n))
}

// refund gives n bytes back to the connection.
func (c *Conn) refund(n int) {
	if n := c.recv.refund(n, c.cfg.ConnWindowBytes); n > 0 {
		c.appendWindowUpdate(0, n)
	}
}

// Held returns how many bytes of bodies the peer has sent and has got no credit of the connection
// for. It is 0 while no stream has a body that was not read.
func (c *Conn) Held() int {
	return int(max(c.cfg.ConnWindowBytes, initialWindowBytes) - c.recv.avail - c.recv.unsent)
}

// Consumed gives the peer credit for n bytes of a body that the handler has read. It does nothing
// for a stream that has ended, whose credit was already given back.
func (c *Conn) Consumed(st *Stream, n int) {
	if c.Discarded(st, n); st.state != open && st.state != halfClosedLocal {
		return // the peer sends nothing more
	}
	if n := st.recv.refund(n, c.cfg.StreamWindowBytes); n > 0 {
		c.appendWindowUpdate(st.id, n)
	}
}

// Discarded is like Consumed for bytes of a body that no handler will read: the connection gets
// credit, and the stream does not, so the peer stops.
func (c *Conn) Discarded(st *Stream, n int) {
	if n > int(st.held) {
		n = int(st.held) // the stream has ended since
	}
	st.held -= int32(n)
	c.refund(n)
}

// window returns the window of a stream alone, without that of the connection.
func (c *Conn) window(st *Stream) int64 { return int64(c.peerWindow) + st.delta }

// Window returns how many bytes of DATA can be sent on a stream now. If it is not positive, nothing
// can be sent.
func (c *Conn) Window(st *Stream) int { return int(min(c.window(st), int64(c.send))) }

// setInitialWindow applies the peer's SETTINGS_INITIAL_WINDOW_SIZE.
func (c *Conn) setInitialWindow(v int32, ev *Event) verdict {
	if int64(v)+c.deltaMost > maxWindowBytes {
		// deltaMost is a bound. To find the exact value we must visit the streams. A peer can cause
		// that only with a WINDOW_UPDATE on a stream that has ended since, not with SETTINGS alone.
		if c.deltaMost = c.streams.deltaMost(); int64(v)+c.deltaMost > maxWindowBytes {
			return connError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE makes the window of a stream too large")
		}
	}
	if v > c.peerWindow {
		ev.Kind = WindowOpened
	}
	smaller := v < c.peerWindow
	c.peerWindow = v
	if smaller {
		return c.spendIdle(budget(c.Senders() / sendersPerShrink))
	}
	return verdict{}
}

// windowUpdate applies a WINDOW_UPDATE frame.
func (c *Conn) windowUpdate(f *Frame, ev *Event) verdict {
	n := int64(binary.BigEndian.Uint32(f.payload) & maxID)
	if v := c.spendIdle(1); v.scope != fine {
		return v
	}
	if f.id == 0 {
		if int64(c.send)+n > maxWindowBytes {
			return connError(FlowControlError, "WINDOW_UPDATE makes the window of the connection too large")
		}
		c.send += int32(n)
		ev.Kind = WindowOpened
		return verdict{}
	}
	if c.isUnopened(f.id) {
		return verdict{}
	}
	st, v := c.receive(f.id, gotWindowUpdate)
	if st == nil || v.scope != fine {
		return v
	}
	if c.window(st)+n > maxWindowBytes {
		return streamError(FlowControlError, "WINDOW_UPDATE makes the window of the stream too large")
	}
	st.delta += n
	c.deltaMost = max(c.deltaMost, st.delta)
	c.windowOpened(st)
	ev.Kind, ev.Stream = WindowOpened, st
	return verdict{}
}
