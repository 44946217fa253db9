package http2

import "github.com/percore/percore/internal/http2/hpack"

type serverSide struct{}

func (serverSide) hello(cfg *Config) (preface string, id uint16, v uint32) {
	return "", settingMaxStreams, cfg.Streams
}

func (serverSide) pseudo(f *Frame, field *hpack.Field) bool { return f.set(field) }

func (serverSide) ignores(c *Conn, f *Frame) bool {
	if f.typ == typeRSTStream && c.cfg.IgnoreIdleResets && f.id&1 == 1 && c.streams.isIdle(f.id) {
		return true
	}
	return c.away == leaving && f.id > c.streams.lastID
}

func (s serverSide) headers(c *Conn, f *Frame, ev *Event) verdict {
	if f.id&1 == 0 {
		return connError(ProtocolError, illegalID)
	}
	state, st := c.streams.stateOf(f.id)
	if state == idle {
		return s.request(c, f, ev)
	}
	return c.trailers(f, state, st, ev)
}

func (s serverSide) request(c *Conn, f *Frame, ev *Event) verdict {
	c.streams.lastID = f.id
	c.budgets.earnIdle(c.cfg, idlePerStream)
	if v := s.checkRoom(c); v.scope != fine {
		return v
	}
	if f.selfDeps {
		return streamError(ProtocolError, "a stream depends on itself")
	}
	r := &f.request
	if v := c.cfg.judge(r, f.checkTarget(c.cfg.ExtendedConnect)); v.scope != fine {
		return v
	}
	r.End, r.Fields = f.has(flagEndStream), f.list.Fields[f.pseudos:]
	f.checkFields(c.cfg.HeaderFields)
	if v := c.cfg.judge(r, r.checkUserInfo()); v.scope != fine {
		return v
	}
	ev.class = plainPriority
	if c.cfg.Priorities == ServePriorities {
		ev.class = c.signals.ofRequest(&f.wishes)
	}
	ev.Kind, ev.ID, ev.Request, ev.Fields, ev.End = RequestStarted, f.id, r, r.Fields, r.End
	return verdict{}
}

// checkRoom returns an error if the client has too many streams, or has ended too many early.
func (serverSide) checkRoom(c *Conn) verdict {
	switch {
	case uint32(c.streams.n) >= c.cfg.Streams && uint32(c.Streams()-c.Answered()) >= c.cfg.Streams:
		if c.unacked > 0 || c.cfg.RetryStreams { // the peer may not know the limit yet
			return streamError(RefusedStream, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS")
		}
		return streamError(ProtocolError, "more streams than SETTINGS_MAX_CONCURRENT_STREAMS")
	case int64(c.handlers) >= handlersPerStream*int64(c.cfg.Streams):
		return streamError(RefusedStream, "too many handlers of streams that were reset")
	case c.budgets.resets < 0:
		return streamError(RefusedStream, "too many streams that end early")
	}
	return verdict{}
}

// fails counts a wrong request as opened.
func (serverSide) fails(c *Conn, f *Frame) bool {
	if f.typ == typeHeaders && f.id&1 == 1 && c.streams.get(f.id) == nil {
		c.streams.lastID = max(c.streams.lastID, f.id)
		c.streams.noteCancelled(f.id)
	}
	return true
}

func (serverSide) spendReset(c *Conn) verdict { return c.budgets.spendReset(c.cfg) }

func (serverSide) goAway(c *Conn, f *Frame, ev *Event) verdict {
	if !c.cfg.IgnoreGoAway {
		ev.Kind = PeerGoesAway
		c.GoAway(NoError, "")
	}
	return c.budgets.spendIdle(1)
}

func (serverSide) lastServed(c *Conn, coming bool) uint32 {
	if coming {
		return maxID
	}
	return c.streams.lastID
}

// Open opens the stream of an event RequestStarted, and counts a handler until Returned.
func (c *Conn) Open(st *Stream, ev *Event) {
	st.id, st.left, st.state = ev.ID, -1, open
	if ev.End {
		st.state = halfClosedRemote
	} else {
		st.left = ev.Request.ContentLength
	}
	st.begun, st.recv.avail = true, c.cfg.StreamWindowBytes
	st.priority = c.schedule.takeEarly(ev.ID, ev.class)
	c.streams.add(st)
	c.handlers++
}

// Refuse ends the stream of an event RequestStarted with a code, such as RefusedStream.
func (c *Conn) Refuse(ev *Event, code ErrCode) {
	c.writer.reset(ev.ID, code, ownReset)
	c.streams.noteCancelled(ev.ID)
}

// Returned notes that the handler of a stream passed to Open has returned.
func (c *Conn) Returned() { c.handlers-- }

// Handlers returns how many handlers have not returned. With more than Config.Streams, some belong to
// streams that were reset, and the caller lets new ones wait.
func (c *Conn) Handlers() int { return int(c.handlers) }
