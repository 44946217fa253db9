package http2

import (
	"encoding/binary"

	"github.com/percore/percore/internal/http2/hpack"
)

// A frameType is the type of a frame (RFC 9113, section 6).
type frameType uint8

const (
	typeData         frameType = 0x0
	typeHeaders      frameType = 0x1
	typePriority     frameType = 0x2
	typeRSTStream    frameType = 0x3
	typeSettings     frameType = 0x4
	typePushPromise  frameType = 0x5
	typePing         frameType = 0x6
	typeGoAway       frameType = 0x7
	typeWindowUpdate frameType = 0x8
	typeContinuation frameType = 0x9

	typePriorityUpdate frameType = 0x10 // RFC 9218, section 7.1
)

// The flags of frames. One bit means END_STREAM or ACK, depending on the type.
const (
	flagEndStream  = 0x1
	flagAck        = 0x1
	flagEndHeaders = 0x4
	flagPadded     = 0x8
	flagPriority   = 0x20
)

const (
	headerBytes   = 9       // of a frame
	maxFrameBytes = 1 << 14 // of a payload that all accept; SETTINGS_MAX_FRAME_SIZE allows more
	maxID         = 1<<31 - 1
)

// Preface is the first thing that a client sends (RFC 9113, section 3.4).
const Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// A header is the beginning of a frame.
type header struct {
	typ    frameType
	flags  uint8
	id     uint32
	length int32 // of the payload
}

func (h *header) has(flag uint8) bool { return h.flags&flag != 0 }

// parseHeader parses a header, which must be complete.
func parseHeader(p []byte) header {
	return header{
		length: int32(p[0])<<16 | int32(p[1])<<8 | int32(p[2]),
		typ:    frameType(p[3]),
		flags:  p[4],
		id:     binary.BigEndian.Uint32(p[5:]) & maxID,
	}
}

// appendHeader appends the header of a frame.
func appendHeader(dst []byte, typ frameType, flags uint8, id uint32, length int) []byte {
	dst = append(dst, byte(length>>16), byte(length>>8), byte(length), byte(typ), flags)
	return binary.BigEndian.AppendUint32(dst, id)
}

// putLength changes the length in the header of a frame.
func putLength(frame []byte, length int) {
	frame[0], frame[1], frame[2] = byte(length>>16), byte(length>>8), byte(length)
}

// A frameRule holds the rules for the length and the stream of a frame.
type frameRule struct {
	least, most int32 // bytes of the payload; most -1 for any
	onStream    bool  // the stream must not be 0; else it must be 0
	lengthFirst bool  // the length is checked before the stream
}

// frameRules has the checks that are made before a frame is interpreted, in net/http's order. A wrong
// length is a FRAME_SIZE_ERROR, and a wrong stream is a PROTOCOL_ERROR, both of the connection. check
// itself has what depends on a flag, and WINDOW_UPDATE, which may be for a stream or the connection.
var frameRules = [...]frameRule{
	typeData:         {0, -1, true, false},
	typeHeaders:      {0, -1, true, false},
	typePriority:     {5, 5, true, false},
	typeRSTStream:    {4, 4, true, true},
	typeSettings:     {0, -1, false, false},
	typePushPromise:  {0, -1, true, false},
	typePing:         {8, 8, false, true},
	typeGoAway:       {8, -1, false, false},
	typeContinuation: {0, -1, true, false},
}

// check returns an error if the length or the stream of a frame breaks a rule.
func (h *header) check() verdict {
	switch {
	case h.typ == typeWindowUpdate:
		if h.length != 4 {
			return connError(FrameSizeError, "WINDOW_UPDATE must have four bytes")
		}
		return verdict{}
	case int(h.typ) >= len(frameRules):
		return verdict{}
	case h.typ == typeSettings && h.has(flagAck) && h.length > 0:
		return connError(FrameSizeError, "an acknowledgement of SETTINGS must be empty")
	}
	rule := &frameRules[h.typ]
	wrongLength := h.length < rule.least || rule.most >= 0 && h.length > rule.most
	wrongStream := rule.onStream != (h.id != 0)
	switch {
	case wrongLength && (rule.lengthFirst || !wrongStream):
		return connError(FrameSizeError, "a frame has a wrong length")
	case wrongStream:
		return connError(ProtocolError, "a frame is on a wrong stream")
	case h.typ == typeSettings && h.length%settingBytes != 0:
		return connError(FrameSizeError, "SETTINGS end in a setting")
	}
	return verdict{}
}

// A Frame is a frame that Conn.Parse has found, or a part of a DATA frame, or a header block with all
// its frames. It belongs to a worker, not to a connection, and is used for one frame after the other.
type Frame struct {
	header
	payload []byte // without padding; valid until the next Parse
	verdict verdict

	// Of DATA.
	first, last bool // parts of the frame
	dataBytes   int  // of the whole frame, without padding

	// Of HEADERS.
	list     hpack.List
	request  Request
	seen     uint8 // a bit for each of its pseudo-header fields
	wishes   wishes
	status   string // of an answer
	pseudos  int    // fields that begin with a colon; they come first
	selfDeps bool   // the stream depends on itself
}

// IsPing reports whether the frame is a PING that is to be answered.
func (f *Frame) IsPing() bool { return f.typ == typePing && !f.has(flagAck) }

// IsMessage reports whether the frame is a part of a request or an answer, even if its stream has ended.
func (f *Frame) IsMessage() bool { return f.typ == typeHeaders || f.typ == typeData }

// A reader is the half of a Conn that finds frames. Its state:
//
//	greeted   rest          dataLeft, padLeft   block   what may come
//	false     of preface    0                   nil     the preface
//	true      of a frame    0                   nil     a frame
//	true      nil           one > 0             nil     more of a DATA frame
//	true      of a frame    0                   set     CONTINUATION on the stream of the block
type reader struct {
	rest     *[]byte // the beginning of something incomplete; nil: none
	block    *block
	dec      hpack.Decoder
	data     header // the DATA frame that is not complete yet
	dataLeft int32  // bytes of its data
	padLeft  int32  // bytes of its padding
	greeted  bool
	broken   bool // nothing is read after an error of the connection
}

// Parse looks for a frame at the beginning of p. It returns how many bytes of p it has used, and whether
// f is a frame for Apply. If not, Parse has used all of p and keeps the beginning of a frame: at most
// Config.FrameBytes plus a header.
//
// Other methods of Conn may run at the same time, since they share no state with Parse. f and what it
// refers to, including p, must not change until Apply has returned.
func (c *Conn) Parse(p []byte, f *Frame) (used int, ok bool) { return c.reader.parse(c.cfg, p, f) }

func (r *reader) parse(cfg *Config, p []byte, f *Frame) (used int, ok bool) {
	f.list.Strings = cfg.Strings
	for used < len(p) && !ok && !r.broken {
		var n int
		if r.rest != nil {
			n, ok = r.parseRest(cfg, p[used:], f)
		} else {
			n, ok = r.parseUnit(cfg, p[used:], f)
		}
		if n == 0 && !ok {
			rest := append([]byte(nil), p[used:]...)
			r.rest = &rest
			break
		}
		used += n
	}
	if ok && f.verdict.scope >= ofConn {
		r.broken, r.rest, r.block = true, nil, nil
	}
	if !ok {
		used = len(p)
	}
	return used, ok
}

// parseRest adds as many bytes of p to rest as it needs to be complete.
func (r *reader) parseRest(cfg *Config, p []byte, f *Frame) (used int, ok bool) {
	rest := r.rest
	for used < len(p) {
		need := r.unitBytes(cfg, *rest)
		n := min(need-len(*rest), len(p)-used)
		*rest = append(*rest, p[used:used+n]...)
		used += n
		if len(*rest) == need && r.unitBytes(cfg, *rest) == need {
			r.rest = nil
			_, ok = r.parseUnit(cfg, *rest, f)
			break
		}
	}
	return used, ok
}

// unitBytes returns how many bytes the next step needs, as far as p shows: either more than p has, or
// the length of the unit that p begins with.
func (r *reader) unitBytes(cfg *Config, p []byte) int {
	switch {
	case !r.greeted:
		return len(Preface)
	case len(p) < headerBytes:
		return headerBytes
	}
	h := parseHeader(p)
	switch {
	case int(h.length) > cfg.FrameBytes:
		return headerBytes // an error
	case h.typ != typeData:
		return headerBytes + int(h.length)
	case h.has(flagPadded) && h.length > 0:
		return headerBytes + 1
	}
	return headerBytes
}

// parseUnit takes the preface, a frame, or a part of a DATA frame. It uses no bytes if they are too few.
func (r *reader) parseUnit(cfg *Config, p []byte, f *Frame) (used int, ok bool) {
	if r.dataLeft > 0 || r.padLeft > 0 {
		return r.parseData(p, 0, f), true
	}
	if !r.greeted && string(p[:min(len(p), len(Preface))]) != Preface[:min(len(p), len(Preface))] {
		*f = Frame{verdict: noPreface, list: f.list}
		return len(p), true
	}
	n := r.unitBytes(cfg, p)
	if len(p) < n {
		return 0, false
	}
	if !r.greeted {
		r.greeted = true
		return n, false
	}
	f.begin(parseHeader(p))
	if f.verdict = r.checkOrder(cfg, &f.header); f.verdict.scope != fine {
		return n, true
	}
	if f.typ == typeData {
		return r.beginData(p, f), true
	}
	f.payload = p[headerBytes:n]
	return n, r.parsePayload(cfg, f)
}

// begin sets up f for a frame with a known header.
func (f *Frame) begin(h header) {
	f.header, f.payload, f.verdict = h, nil, verdict{}
	f.first, f.last, f.dataBytes, f.pseudos, f.selfDeps = false, false, 0, 0, false
}

// checkOrder returns the rule that the header of a frame breaks, if any: about its length, its place in
// a header block, or its type.
func (r *reader) checkOrder(cfg *Config, h *header) verdict {
	b := r.block
	switch {
	case int(h.length) > cfg.FrameBytes:
		return h.tooLong()
	case b != nil && (h.typ != typeContinuation || h.id != b.id):
		return connError(ProtocolError, "a header block is interrupted")
	case b == nil && h.typ == typeContinuation:
		return connError(ProtocolError, "CONTINUATION without a header block")
	case h.typ == typePriorityUpdate && cfg.Priorities != UnknownPriorities:
		return h.checkPriorityUpdate()
	}
	return h.check()
}

// tooLong is for a frame that is longer than we have announced, or for a peer that speaks HTTP/1, whose
// "HTTP/" reads as such a frame.
func (h *header) tooLong() verdict {
	if h.length == 'H'<<16|'T'<<8|'T' && h.typ == 'P' && h.flags == '/' {
		return connError(FrameSizeError, "the peer answers in HTTP/1")
	}
	return connError(FrameSizeError, "a frame is longer than SETTINGS_MAX_FRAME_SIZE")
}

// parsePayload looks at the payload of a frame that is not DATA. It reports whether there is a frame for
// Apply.
func (r *reader) parsePayload(cfg *Config, f *Frame) bool {
	switch f.typ {
	case typeHeaders:
		return r.parseHeaders(cfg, f)
	case typeContinuation:
		return r.continueBlock(cfg, f)
	case typeSettings:
		f.verdict = checkSettings(f.payload)
		if f.has(flagAck) && f.verdict.scope == fine {
			r.dec.SetLimit(cfg.DecoderTableBytes) // RFC 7541, section 4.2
		}
	case typeWindowUpdate:
		if binary.BigEndian.Uint32(f.payload)&maxID == 0 {
			f.verdict = streamError(ProtocolError, "WINDOW_UPDATE of nothing")
			if f.id == 0 { // RFC 9113, section 6.9
				f.verdict.scope = ofConn
			}
		}
	case typePriorityUpdate:
		if cfg.Priorities != UnknownPriorities {
			f.beginPriorityUpdate()
		}
	}
	return true
}

// beginData handles the header of a DATA frame, and as much of its data as has arrived.
func (r *reader) beginData(p []byte, f *Frame) (used int) {
	used = headerBytes
	pad := 0
	if f.has(flagPadded) {
		if f.length == 0 {
			f.verdict = connError(FrameSizeError, "padding without its length")
			return used
		}
		pad = int(p[used]) + 1
		used++
	}
	if f.dataBytes = int(f.length) - pad; f.dataBytes < 0 {
		f.verdict = connError(ProtocolError, "more padding than payload")
		return used
	}
	f.first = true
	r.data, r.dataLeft, r.padLeft = f.header, int32(f.dataBytes), int32(max(pad-1, 0))
	return r.parseData(p, used, f)
}

// parseData handles as much of a DATA frame as has arrived, after the bytes that are already used.
func (r *reader) parseData(p []byte, used int, f *Frame) int {
	if used == 0 {
		f.begin(r.data)
	}
	n := min(int(r.dataLeft), len(p)-used)
	f.payload = p[used : used+n]
	used += n
	r.dataLeft -= int32(n)
	if r.dataLeft == 0 {
		n = min(int(r.padLeft), len(p)-used)
		used += n
		r.padLeft -= int32(n)
	}
	f.last = r.dataLeft == 0 && r.padLeft == 0
	return used
}
