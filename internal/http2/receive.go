package http2

import "encoding/binary"

// ignore drops a frame of a stream that our GOAWAY has excluded. The connection's credit for DATA is
// given back (RFC 9113, section 6.8).
func (c *Conn) ignore(f *Frame) verdict {
	if f.typ != typeData {
		return c.budgets.spendIdle(1)
	}
	return c.drop(f, verdict{})
}

// drop drops a DATA frame, and gives its credit back.
func (c *Conn) drop(f *Frame, v verdict) verdict {
	if !f.first {
		return verdict{}
	}
	if c.skip = true; !c.recv.take(int(f.length)) {
		return overWindow
	}
	c.refund(int(f.length))
	return v
}

// overWindow ends only the stream, even if the connection's window was exceeded, as net/http does.
var overWindow = streamError(FlowControlError, "more DATA than the window allows")

// beforeHeaders is for a server that sends DATA before a header. The words are net/http's.
var beforeHeaders = streamError(ProtocolError, "protocol error: received DATA before a HEADERS frame")

// data handles a DATA frame or a part of it. The first part is checked for the whole frame.
func (c *Conn) data(f *Frame, ev *Event) verdict {
	if !f.first {
		return c.moreData(f, ev)
	}
	c.skip = true
	if v := c.dataBudget(f); v.scope != fine {
		return v
	}
	s, st := c.streams.stateOf(f.id)
	t := &transitions[s][gotData]
	switch v := t.verdict; {
	case v.scope == ofConn:
		return v
	case v.scope == ofStream || st == nil:
		return c.drop(f, v)
	case !st.begun:
		return c.drop(f, beforeHeaders)
	case st.left >= 0 && int64(f.dataBytes) > st.left:
		return c.drop(f, tooLong)
	case f.length > c.recv.avail || !st.recv.take(int(f.length)):
		return overWindow
	}
	c.recv.avail -= f.length
	c.skip = false
	if pad := int(f.length) - f.dataBytes; pad > 0 {
		st.unread += int32(pad)
		c.Consumed(st, pad)
	}
	return c.body(f, st, ev)
}

func (c *Conn) dataBudget(f *Frame) verdict {
	switch {
	case f.dataBytes > 0:
		c.budgets.earnIdle(c.cfg, idlePerData)
	case !f.has(flagEndStream):
		return c.budgets.spendIdle(1)
	}
	return verdict{}
}

// moreData handles a part of a DATA frame that has already passed the checks.
func (c *Conn) moreData(f *Frame, ev *Event) verdict {
	if c.skip {
		return verdict{}
	}
	st := c.streams.get(f.id)
	if st == nil { // the stream has ended in the middle of the frame
		c.refund(len(f.payload))
		return verdict{}
	}
	return c.body(f, st, ev)
}

func (c *Conn) body(f *Frame, st *Stream, ev *Event) verdict {
	n := len(f.payload)
	if st.left > 0 {
		st.left -= int64(n)
	}
	if c.cfg.CreditOnReceipt {
		c.refund(n)
	} else {
		st.unread += int32(n)
	}
	ev.Stream, ev.Data = st, f.payload
	if ev.End = f.last && f.has(flagEndStream); ev.End {
		ev.Short = st.left > 0
		c.enter(st, transitions[st.state][gotDataEnd].next)
		c.endedWell(st)
	}
	if n > 0 || ev.End {
		ev.Kind = DataReceived
	}
	return verdict{}
}

// trailers handles a header block behind the first one of its stream.
func (c *Conn) trailers(f *Frame, s state, st *Stream, ev *Event) verdict {
	in := gotHeaders
	if f.has(flagEndStream) {
		in = gotHeadersEnd
	}
	v := transitions[s][in].verdict
	if v.scope == ofConn {
		v.reason = illegalID
	}
	if v.scope != fine {
		return v
	}
	if st == nil { // trailers that have crossed our reset
		return c.budgets.spendIdle(1)
	}
	if f.pseudos > 0 {
		return streamError(ProtocolError, "trailers have pseudo-header fields")
	}
	if f.list.Truncated {
		return streamError(ProtocolError, "trailers exceed the limits")
	}
	ev.Kind, ev.Stream, ev.Fields, ev.End = TrailersEnded, st, f.list.Fields, true
	ev.Short = st.left > 0
	c.enter(st, transitions[s][in].next)
	c.endedWell(st)
	return verdict{}
}

// endedWell is for END_STREAM, which ends the stream well if it was the second one.
func (c *Conn) endedWell(st *Stream) {
	if st.state == closed {
		c.budgets.earnReset(c.cfg)
	}
}

// priority handles a PRIORITY frame, which no longer has a meaning (RFC 9113, section 5.3.2).
func (c *Conn) priority(f *Frame) verdict {
	if binary.BigEndian.Uint32(f.payload)&maxID == f.id {
		return streamError(ProtocolError, "a stream depends on itself")
	}
	return c.budgets.spendIdle(1)
}

func (c *Conn) rstStream(f *Frame, ev *Event) verdict {
	st, v := c.receive(f.id, gotReset)
	if v.scope != fine {
		return v
	}
	if st == nil {
		return c.budgets.spendIdle(1)
	}
	ev.Kind, ev.Stream, ev.Code = StreamReset, st, ErrCode(binary.BigEndian.Uint32(f.payload))
	return c.cfg.side().spendReset(c)
}

func (c *Conn) ping(f *Frame, ev *Event) verdict {
	if f.has(flagAck) {
		ev.Kind, ev.Data = PingAcked, f.payload
	} else {
		ev.Kind, ev.Answered = PingReceived, c.answered
		c.answered = false
		c.writer.control(typePing, flagAck, 0, f.payload)
	}
	return c.budgets.spendIdle(1)
}
