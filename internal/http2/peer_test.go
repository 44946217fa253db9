package http2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore/internal/http2/hpack"
)

// A peer is the client of a connection in a test. It writes frames, feeds them to the connection,
// and logs the events and the frames that come back, one per line.
type peer struct {
	t       testing.TB
	c       *Conn
	f       Frame
	enc     hpack.Encoder
	dec     hpack.Decoder
	list    hpack.List
	log     []string
	err     error
	streams map[uint32]*Stream
	cut     func(n int) int // how many bytes of n come next; nil for all
	manual  bool            // requests are not opened
	returns bool            // handlers return at once
	in      []byte          // frames that are not yet fed
}

// newPeer returns a peer that has sent the preface and its settings, with an empty log.
func newPeer(t testing.TB, cfg *Config) *peer {
	p := newStranger(t, cfg)
	p.in = append(p.in, Preface...)
	p.frame(typeSettings, 0, 0, nil)
	p.frame(typeSettings, flagAck, 0, nil)
	p.feed()
	p.log = nil
	return p
}

// newStranger returns a peer that has sent nothing.
func newStranger(t testing.TB, cfg *Config) *peer {
	if cfg == nil {
		cfg = DefaultConfig()
	}
	return &peer{t: t, c: newConn(cfg), enc: hpack.MakeEncoder(4096), dec: hpack.MakeDecoder(), streams: make(map[uint32]*Stream)}
}

func newConn(cfg *Config) *Conn {
	c := new(Conn)
	c.Init(cfg)
	return c
}

// frame adds a frame to those that are fed next.
func (p *peer) frame(typ frameType, flags uint8, id uint32, payload []byte) *peer {
	p.in = appendHeader(p.in, typ, flags, id, len(payload))
	p.in = append(p.in, payload...)
	return p
}

// block encodes fields, which are written as name, value, name, value.
func (p *peer) block(fields ...string) []byte {
	b := p.enc.Begin(nil)
	for i := 0; i < len(fields); i += 2 {
		b = p.enc.Append(b, hpack.Field{Name: hpack.NameOf(fields[i]), Value: fields[i+1]})
	}
	return b
}

var get = []string{":method", "GET", ":scheme", "http", ":path", "/", ":authority", "example.com"}

// get sends a request without a body, with more fields.
func (p *peer) get(id uint32, more ...string) *peer {
	return p.frame(typeHeaders, flagEndHeaders|flagEndStream, id, p.block(slices.Concat(get, more)...))
}

// post sends the beginning of a request with a body.
func (p *peer) post(id uint32, more ...string) *peer {
	return p.frame(typeHeaders, flagEndHeaders, id, p.block(slices.Concat(get, more)...))
}

func (p *peer) data(id uint32, body string, end bool) *peer {
	flags := uint8(0)
	if end {
		flags = flagEndStream
	}
	return p.frame(typeData, flags, id, []byte(body))
}

func u32(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

func (p *peer) windowUpdate(id, n uint32) *peer { return p.frame(typeWindowUpdate, 0, id, u32(n)) }
func (p *peer) reset(id uint32) *peer           { return p.frame(typeRSTStream, 0, id, u32(uint32(Cancel))) }

// settings sends settings, written as id, value, id, value.
func (p *peer) settings(s ...uint32) *peer {
	var b []byte
	for i := 0; i < len(s); i += 2 {
		b = binary.BigEndian.AppendUint16(b, uint16(s[i]))
		b = binary.BigEndian.AppendUint32(b, s[i+1])
	}
	return p.frame(typeSettings, 0, 0, b)
}

// feed passes the frames to the connection, and logs what comes back.
func (p *peer) feed() *peer {
	in := p.in
	p.in = nil
	for len(in) > 0 && p.err == nil {
		n := len(in)
		if p.cut != nil {
			n = p.cut(n)
		}
		p.feedPart(slices.Clone(in[:n])) // nothing may keep a reference to it
		in = in[n:]
	}
	p.readOutput()
	return p
}

// feedAtOnce is feed for frames whose answers wait, as no output is taken.
func (p *peer) feedAtOnce() {
	in := p.in
	p.in = nil
	p.feedPart(in)
}

func (p *peer) feedPart(part []byte) {
	for len(part) > 0 && p.err == nil {
		n, ok := p.c.Parse(part, &p.f)
		part = part[n:]
		if ok {
			var ev Event
			p.err = p.c.Apply(&p.f, &ev)
			p.note(&ev)
		}
		checkInvariants(p.t, p.c)
	}
	if p.err != nil {
		p.log = append(p.log, "error "+p.err.Error())
	}
}

// note logs an event, and opens the stream of a request.
func (p *peer) note(ev *Event) {
	s := ""
	switch ev.Kind {
	case None, PingReceived:
		return
	case RequestStarted:
		r := ev.Request
		s = fmt.Sprintf("request %d %s %s://%s%s%s", ev.ID, r.Method, r.Scheme, r.Authority, r.Path, fieldsText(ev.Fields))
		if r.Protocol != "" {
			s += " protocol " + r.Protocol
		}
		if r.BadTarget {
			s += " bad target"
		}
		if r.Problem != Nothing {
			s += fmt.Sprintf(" problem %d", r.Problem)
		}
		if !p.manual {
			p.streams[ev.ID] = new(Stream)
			p.c.Open(p.streams[ev.ID], ev)
			if p.returns {
				p.c.Returned()
			}
		}
	case DataReceived:
		s = fmt.Sprintf("data %d %q", ev.Stream.ID(), latin(ev.Data))
	case TrailersEnded:
		s = fmt.Sprintf("trailers %d%s", ev.Stream.ID(), fieldsText(ev.Fields))
	case StreamReset:
		s = fmt.Sprintf("reset %d %v", ev.Stream.ID(), ev.Code)
		if ev.Local {
			s += " local"
		}
	case PingAcked:
		s = fmt.Sprintf("pong %x", ev.Data)
	case PeerGoesAway:
		s = "goes away"
	case ServerGoesAway:
		s = fmt.Sprintf("goes away %v %d %q", ev.Code, ev.ID, ev.Data)
	case AnswerReceived:
		s = fmt.Sprintf("answer %d %d%s", ev.Stream.ID(), ev.Status, fieldsText(ev.Fields))
	}
	if ev.End {
		s += " end"
	}
	if ev.Short {
		s += " short"
	}
	p.log = append(p.log, s)
}

// latin returns one character per byte, so a body reads the same wherever it is cut.
func latin(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func fieldsText(fields []hpack.Field) (s string) {
	for _, f := range fields {
		s += " " + f.Name.String() + "=" + f.Value
	}
	return s
}

// readOutput logs the frames that the connection sends, each after ">".
func (p *peer) readOutput() {
	out := bytes.TrimPrefix(p.c.TakeOutput(), []byte(Preface))
	for len(out) > 0 {
		h := parseHeader(out)
		payload := out[headerBytes : headerBytes+h.length]
		out = out[headerBytes+h.length:]
		p.log = append(p.log, "> "+p.frameText(&h, payload))
	}
}

func (p *peer) frameText(h *header, b []byte) (s string) {
	switch h.typ {
	case typeData:
		s = fmt.Sprintf("data %d %q", h.id, latin(b))
	case typeHeaders, typeContinuation:
		if h.typ == typeHeaders {
			p.list.Reset(1<<20, 1000)
		}
		if err := p.dec.Decode(b, h.has(flagEndHeaders), &p.list); err != nil {
			p.t.Errorf("decoding a header block: %v", err)
		}
		s = fmt.Sprintf("headers %d", h.id)
		if h.has(flagEndHeaders) {
			s += fieldsText(p.list.Fields)
		}
	case typeRSTStream:
		return fmt.Sprintf("reset %d %v", h.id, ErrCode(binary.BigEndian.Uint32(b)))
	case typeSettings:
		if h.has(flagAck) {
			return "settings ack"
		}
		return fmt.Sprintf("settings %x", b)
	case typePing:
		return fmt.Sprintf("ping %t %x", h.has(flagAck), b)
	case typeGoAway:
		s := fmt.Sprintf("goaway %d %v", binary.BigEndian.Uint32(b), ErrCode(binary.BigEndian.Uint32(b[4:])))
		if debug := b[8:]; len(debug) > 0 {
			s += fmt.Sprintf(" %q", debug)
		}
		return s
	case typeWindowUpdate:
		return fmt.Sprintf("window %d %d", h.id, binary.BigEndian.Uint32(b))
	}
	if h.has(flagEndStream) {
		s += " end"
	}
	return s
}

// want compares the log with lines, and empties it. A line may leave out the reason of an error.
func (p *peer) want(lines ...string) {
	p.t.Helper()
	ok := len(p.log) == len(lines)
	for i := 0; ok && i < len(lines); i++ {
		ok = p.log[i] == lines[i] || strings.HasPrefix(lines[i], "error ") && strings.HasPrefix(p.log[i], lines[i])
	}
	if !ok {
		p.t.Errorf("got:\n\t%s\nwant:\n\t%s", strings.Join(p.log, "\n\t"), strings.Join(lines, "\n\t"))
	}
	p.log = nil
}

// checkInvariants checks the sums of flow.go and the shape of the table.
func checkInvariants(t testing.TB, c *Conn) {
	t.Helper()
	unread, n := int64(0), 0
	c.Each(func(st *Stream) {
		n++
		unread += int64(st.unread)
		if st.unread < 0 || st.recv.avail < 0 || st.recv.unsent < 0 || st.Ended() || st.state == idle {
			t.Fatalf("stream %d: unread %d, window %+v, %v", st.id, st.unread, st.recv, st.state)
		}
		if c.send.of(st) > maxWindowBytes || st.delta > c.send.deltaMost {
			t.Fatalf("stream %d: got a window of %d, a delta of %d, %d at most", st.id, c.send.of(st), st.delta, c.send.deltaMost)
		}
	})
	coming := int64(0)
	if !c.skip {
		coming = int64(c.reader.dataLeft)
	}
	if sum := int64(c.recv.avail) + int64(c.recv.unsent) + unread + coming; sum != int64(c.cfg.ConnWindowBytes) && c.away != failed {
		t.Fatalf("got a sum of %d (%+v, %d unread, %d coming), want %d", sum, c.recv, unread, coming, c.cfg.ConnWindowBytes)
	}
	if n != c.Streams() || c.recv.avail < 0 || c.send.conn < 0 {
		t.Fatalf("got %d streams, want %d; windows %+v, %+v", n, c.streams.n, c.recv, c.send)
	}
}

// restBytes returns how much memory the beginning of an incomplete frame has.
func (r *reader) restBytes() int {
	if r.rest == nil {
		return 0
	}
	return cap(*r.rest)
}
