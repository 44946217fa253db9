package http2

import (
	"encoding/binary"

	"github.com/percore/percore/internal/http2/hpack"
)

// A writer is the half of a Conn that makes frames. It knows neither streams nor windows.
type writer struct {
	enc      hpack.Encoder
	out      []byte // frames to send
	controls int32  // frames of control in out: ownReset for each of our own resets, answer for others
	frameMax int32  // the longest payload that is sent
}

func makeWriter(cfg *Config) writer {
	return writer{enc: hpack.MakeEncoder(cfg.EncoderTableBytes), frameMax: int32(min(maxFrameBytes, cfg.SendFrameBytes))}
}

// frame appends a frame.
func (w *writer) frame(typ frameType, flags uint8, id uint32, payload []byte) {
	w.out = append(appendHeader(w.out, typ, flags, id, len(payload)), payload...)
}

// control appends a frame that answers a frame of the peer.
func (w *writer) control(typ frameType, flags uint8, id uint32, payload []byte) {
	w.controls += answer
	w.frame(typ, flags, id, payload)
}

func (w *writer) windowUpdate(id uint32, n int32) { w.word(typeWindowUpdate, id, uint32(n), answer) }

// reset appends RST_STREAM, with its weight for Config.ControlFrames.
func (w *writer) reset(id uint32, code ErrCode, weight int32) {
	w.word(typeRSTStream, id, uint32(code), weight)
}

// word appends a frame of control of four bytes, with its weight.
func (w *writer) word(typ frameType, id, v uint32, weight int32) {
	w.controls += weight
	w.out = binary.BigEndian.AppendUint32(appendHeader(w.out, typ, 0, id, 4), v)
}

func (w *writer) goAway(last uint32, code ErrCode, debug string) {
	w.out = appendHeader(w.out, typeGoAway, 0, 0, 8+len(debug))
	w.out = binary.BigEndian.AppendUint32(w.out, last)
	w.out = binary.BigEndian.AppendUint32(w.out, uint32(code))
	w.out = append(w.out, debug...)
}

func (w *writer) setting(id uint16, v uint32) {
	w.out = binary.BigEndian.AppendUint16(w.out, id)
	w.out = binary.BigEndian.AppendUint32(w.out, v)
}

func (w *writer) data(id uint32, p []byte, last bool) {
	w.out = append(appendDataHeader(w.out, id, len(p), last), p...)
}

func appendDataHeader(dst []byte, id uint32, n int, last bool) []byte {
	flags := uint8(0)
	if last {
		flags = flagEndStream
	}
	return appendHeader(dst, typeData, flags, id, n)
}

// beginBlock begins HEADERS, and returns where the frame begins. Only status and field may be called
// before endBlock.
func (w *writer) beginBlock(id uint32) (at int) {
	at = len(w.out)
	w.out = appendHeader(w.out, typeHeaders, 0, id, 0)
	w.out = w.enc.Begin(w.out)
	return at
}

func (w *writer) status(status int)   { w.out = w.enc.AppendStatus(w.out, status) }
func (w *writer) field(f hpack.Field) { w.out = w.enc.Append(w.out, f) }

// endBlock appends the rest of the fields, and cuts the block into frames.
func (w *writer) endBlock(at int, id uint32, fields []hpack.Field, end bool) {
	for i := range fields {
		w.out = w.enc.Append(w.out, fields[i])
	}
	w.splitBlock(at, id)
	if end {
		w.out[at+4] |= flagEndStream
	}
}

// splitBlock fills in the lengths of the header block whose frame is at at. If the block is longer than
// the peer's limit, the headers of CONTINUATION are inserted before its further parts.
func (w *writer) splitBlock(at int, id uint32) {
	most := int(w.frameMax)
	n := len(w.out) - at - headerBytes
	parts := max(1, (n+most-1)/most)
	w.out = append(w.out, make([]byte, (parts-1)*headerBytes)...)
	for i := parts - 1; i > 0; i-- { // from the end, so that no part is overwritten before it is moved
		from := at + headerBytes + i*most
		to := from + i*headerBytes
		length := min(most, n-i*most)
		copy(w.out[to:], w.out[from:from+length])
		appendHeader(w.out[:to-headerBytes], typeContinuation, 0, id, length)
	}
	putLength(w.out[at:], min(n, most))
	last := at + (parts-1)*(headerBytes+most)
	w.out[last+4] |= flagEndHeaders
}
