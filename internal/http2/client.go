package http2

import (
	"encoding/binary"
	"errors"

	"github.com/percore/percore/internal/http2/hpack"
)

// This file has what only a client does: see Config.Client. Streams, windows, budgets and the output are
// those of a server. The differences:
//
//	                       server                           client
//	streams are opened     by a request that comes          by Begin, as far as Room goes
//	HEADERS                a request, then trailers         interim answers, an answer, then trailers
//	a stream's RST_STREAM  costs of Config.Resets           costs nothing: the client opened it
//	the peer's GOAWAY      is answered with our own         no stream is opened any more; those that it
//	                                                        does not serve end with EndUnserved
//	PUSH_PROMISE           an error of the connection       the same: our SETTINGS_ENABLE_PUSH is 0
//	the peer's, of 1       is the default                   is ignored, as in net/http, against RFC 9113
//	a frame of a stream    an error of the connection,      is ignored, as in net/http, unless it is
//	that was not opened    unless it is HEADERS             DATA

// ErrNoRoom is the error of Begin if the peer takes no other stream now.
var ErrNoRoom = errors.New("http2: the peer takes no other stream")

// streamsFirst is how many streams a client opens before it knows the peer's limit, as in net/http.
const streamsFirst = 100

// TakesStreams reports whether more streams can be opened on a client's connection, now or when others
// have ended: not once either side has sent GOAWAY, or all identifiers are used.
func (c *Conn) TakesStreams() bool {
	return c.away == staying && !c.peerLeaves && c.lastID < maxID
}

// Room returns how many more streams a client can open now.
func (c *Conn) Room() int {
	if !c.TakesStreams() {
		return 0
	}
	return max(0, int(c.peerStreams)-c.streams.n)
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
// ErrNoRoom.
func (c *Conn) Begin(st *Stream, r *Request, fields []hpack.Field, end bool) error {
	if c.Room() == 0 {
		return ErrNoRoom
	}
	if c.lastID == 0 {
		c.lastID = 1
	} else {
		c.lastID += 2
	}
	st.id, st.left, st.state = c.lastID, -1, open
	st.recv = inflow{avail: c.cfg.StreamWindowBytes}
	st.priority = plainPriority
	c.streams.add(st)
	c.earnIdle(idlePerStream)
	at := c.beginHeaders(st)
	for _, f := range [...]hpack.Field{ // in net/http's order
		{Name: authorityName, Value: r.Authority}, {Name: methodName, Value: r.Method},
		{Name: pathName, Value: r.Path}, {Name: schemeName, Value: r.Scheme}, {Name: protocolName, Value: r.Protocol},
	} {
		if f.Value != "" || f.Name == authorityName && r.HasAuthority() {
			c.out = c.enc.Append(c.out, f)
		}
	}
	c.endHeaders(st, at, fields, end)
	return nil
}

// EndUnserved ends the streams behind the last one that the server serves, as its GOAWAY says: they may
// be tried again elsewhere. It calls visit for each, which has ended then.
func (c *Conn) EndUnserved(last uint32, visit func(*Stream)) {
	c.streams.each(func(st *Stream) {
		if st.id > last {
			c.enter(st, closed)
			visit(st)
		}
	})
}

// clientGoAway handles the server's GOAWAY. There may be another, which says that fewer are served.
func (c *Conn) clientGoAway(f *Frame, ev *Event) verdict {
	c.peerLeaves = true
	ev.Kind, ev.ID = PeerGoesAway, binary.BigEndian.Uint32(f.payload)&maxID
	ev.Code, ev.Data = ErrCode(binary.BigEndian.Uint32(f.payload[4:])), f.payload[8:]
	return c.spendIdle(1)
}

// clientHeaders handles a header block of a server. The texts are net/http's, whose callers see them.
func (c *Conn) clientHeaders(f *Frame, ev *Event) verdict {
	s, st := c.stateOf(f.id)
	switch {
	case st == nil:
		return c.spendIdle(1) // it has ended meanwhile, or was not opened
	case st.answered:
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
		if v := c.spendIdle(1); v.scope != fine {
			return v
		}
	default:
		st.answered = true
	}
	ev.Kind, ev.Stream, ev.Status, ev.Fields, ev.End = AnswerReceived, st, status, f.list.Fields[f.pseudos:], end
	if end {
		c.enter(st, transitions[s][gotHeadersEnd].next)
		c.endedWell(st)
	}
	return verdict{}
}

// parseStatus parses three digits.
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
