package http2

import "encoding/binary"

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
	length int // of the payload
}

func (h *header) has(flag uint8) bool { return h.flags&flag != 0 }

// parseHeader parses a header, which must be complete.
func parseHeader(p []byte) header {
	return header{
		length: int(p[0])<<16 | int(p[1])<<8 | int(p[2]),
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
	least, most int  // bytes of the payload; most -1 for any
	onStream    bool // the stream must not be 0; else it must be 0
	lengthFirst bool // the length is checked before the stream
}

// frameRules has the checks that are made before a frame is interpreted, in the same order as in
// net/http. A wrong length is a FRAME_SIZE_ERROR, and a wrong stream is a PROTOCOL_ERROR, both of
// the connection. The rules for SETTINGS depend on ACK; WINDOW_UPDATE may be for a stream or the
// connection.
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
