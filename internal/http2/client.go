package http2

import (
	"encoding/binary"
	"errors"

	"github.com/percore/percore/internal/http2/hpack"
)

type clientSide struct{}

func (clientSide) hello(*Config) (preface string, id uint16, v uint32) {
	return Preface, settingEnablePush, 0
}

func (clientSide) pseudo(f *Frame, field *hpack.Field) bool {
	if field.Name.Class() != hpack.Status || f.pseudos > 0 {
		return false
	}
	f.status = field.Value
	return true
}

// ignores leaves DATA of a stream that was not opened to the table of states, where it is an error.
func (clientSide) ignores(c *Conn, f *Frame) bool {
	switch f.typ {
	case typeHeaders, typePriority, typeRSTStream, typeWindowUpdate:
		return f.id != 0 && c.streams.isIdle(f.id)
	}
	return false
}

func (clientSide) fails(c *Conn, f *Frame) bool { return !c.streams.isIdle(f.id) }

func (clientSide) spendReset(*Conn) verdict { return verdict{} }

func (clientSide) lastServed(*Conn, bool) uint32 { return 0 }

// goAway handles the server's GOAWAY. There may be another, which says that fewer are served.
func (clientSide) goAway(c *Conn, f *Frame, ev *Event) verdict {
	c.opens = false
	ev.Kind, ev.ID = ServerGoesAway, binary.BigEndian.Uint32(f.payload)&maxID
	ev.Code, ev.Data = ErrCode(binary.BigEndian.Uint32(f.payload[4:])), f.payload[8:]
	return c.budgets.spendIdle(1)
}

// headers handles an answer, or its trailers. The texts are net/http's, whose callers see them.
func (clientSide) headers(c *Conn, f *Frame, ev *Event) verdict {
	s, st := c.streams.stateOf(f.id)
	switch {
	case st == nil:
		return c.budgets.spendIdle(1) // it has ended meanwhile, or was not opened
	case st.begun:
		return c.trailers(f, s, st, ev)
	case f.list.Truncated:
		return streamError(ProtocolError, "http2: response header list larger than advertised limit")
	case f.status == "":
		return streamError(ProtocolError, "malformed response from server: missing status pseudo header")
	}
	end := f.has(flagEndStream)
	status, ok := parseStatus(f.status)
	switch {
	case !ok:
		return streamError(ProtocolError, "malformed response from server: malformed non-numeric status pseudo header")
	case status < 200 && end:
		return streamError(ProtocolError, "1xx informational response with END_STREAM flag")
	case status < 200:
		if v := c.budgets.spendIdle(1); v.scope != fine {
			return v
		}
	default:
		st.begun = true
	}
	ev.Kind, ev.Stream, ev.Status, ev.Fields, ev.End = AnswerReceived, st, status, f.list.Fields[f.pseudos:], end
	if end {
		c.enter(st, transitions[s][gotHeadersEnd].next)
		c.endedWell(st)
	}
	return verdict{}
}

// ErrNoQuota is the error of Begin if the peer takes no more streams now.
var ErrNoQuota = errors.New("http2: the peer takes no other stream")

// TakesStreams reports whether more streams can be opened on a client's connection, now or when others
// have ended: not once either side has sent GOAWAY, or all identifiers are used.
func (c *Conn) TakesStreams() bool {
	return c.away == staying && c.opens && c.streams.lastID < maxID
}

// Quota returns how many more streams a client can open now.
func (c *Conn) Quota() int {
	if !c.TakesStreams() {
		return 0
	}
	return max(0, int(c.peerStreams-c.streams.n))
}

// The names of a request's pseudo-header fields.
var (
	methodName    = hpack.NameOf(":method")
	schemeName    = hpack.NameOf(":scheme")
	authorityName = hpack.NameOf(":authority")
	pathName      = hpack.NameOf(":path")
	protocolName  = hpack.NameOf(":protocol")
)

// Begin opens a stream with the header of a request: the pseudo-header fields of r that are not empty,
// and fields. The caller makes sure that all are valid. Begin does not keep the fields. The error is
// ErrNoQuota.
func (c *Conn) Begin(st *Stream, r *Request, fields []hpack.Field, end bool) error {
	if c.Quota() == 0 {
		return ErrNoQuota
	}
	st.id, st.left, st.state = c.streams.nextID(), -1, open
	st.recv = inflow{avail: c.cfg.StreamWindowBytes}
	st.priority = plainPriority
	c.streams.add(st)
	c.budgets.earnIdle(c.cfg, idlePerStream)
	at := c.beginHeaders(st.id)
	for _, f := range [...]hpack.Field{ // in net/http's order
		{Name: authorityName, Value: r.Authority}, {Name: methodName, Value: r.Method},
		{Name: pathName, Value: r.Path}, {Name: schemeName, Value: r.Scheme}, {Name: protocolName, Value: r.Protocol},
	} {
		if f.Value != "" || f.Name == authorityName && r.HasAuthority {
			c.writer.field(f)
		}
	}
	c.endHeaders(st, at, fields, end)
	return nil
}

// EndUnserved ends the streams behind the last one that the server's GOAWAY says it serves: they may be
// tried again elsewhere. It calls visit for each when it has ended.
func (c *Conn) EndUnserved(last uint32, visit func(*Stream)) {
	c.streams.each(func(st *Stream) {
		if st.id > last {
			c.enter(st, closed)
			visit(st)
		}
	})
}

func parseStatus(s string) (status int, ok bool) {
	if len(s) != 3 || s[0] < '1' {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		status = 10*status + int(s[i]-'0')
	}
	return status, true
}
