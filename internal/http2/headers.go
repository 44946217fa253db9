package http2

import (
	"encoding/binary"

	"github.com/percore/percore/internal/http2/hpack"
)

// A block is a header block that is still waiting for frames. It exists only while a client splits
// its fields over frames. The limits on the list and on the number of frames bound it.
type block struct {
	header               // of the HEADERS frame
	list      hpack.List // what has come
	selfDeps  bool
	frames    int // CONTINUATION
	wireBytes int
}

// parseHeaders handles a HEADERS frame. It reports whether the block is complete, or wrong.
func (c *Conn) parseHeaders(f *Frame) bool {
	f.list.Reset(c.cfg.HeaderListBytes, c.cfg.HeaderFields)
	p, v := f.unpad()
	if v.scope != fine {
		f.verdict = v
		return true
	}
	if c.decode(f, &f.list, p, f.has(flagEndHeaders)) {
		return true
	}
	if f.has(flagEndHeaders) {
		c.finishBlock(f)
		return true
	}
	c.reader.block = &block{header: f.header, list: f.list, selfDeps: f.selfDeps, wireBytes: len(p)}
	f.list = hpack.List{}
	return false
}

// unpad returns the fragment of a HEADERS frame. Padding that is too long ends the connection,
// unlike in net/http, which skips the fragment and is then out of step with the peer's table.
func (f *Frame) unpad() ([]byte, verdict) {
	p, pad := f.payload, 0
	if f.has(flagPadded) {
		if len(p) == 0 {
			return nil, connError(FrameSizeError, "padding without its length")
		}
		pad, p = int(p[0]), p[1:]
	}
	if f.has(flagPriority) {
		if len(p) < 5 {
			return nil, connError(FrameSizeError, "HEADERS without their priority")
		}
		f.selfDeps = binary.BigEndian.Uint32(p)&maxID == f.id
		p = p[5:]
	}
	if pad > len(p) {
		return nil, connError(ProtocolError, "more padding than payload")
	}
	return p[:len(p)-pad], verdict{}
}

// continueBlock handles a CONTINUATION frame. It reports whether the block is complete, or wrong.
func (c *Conn) continueBlock(f *Frame) bool {
	b := c.reader.block
	b.frames++
	b.wireBytes += len(f.payload)
	switch {
	case b.frames > c.cfg.continuationsMax() || b.wireBytes > c.cfg.blockBytesMax():
		f.verdict = limitError(HeaderLimit, "a header block is too long")
		return true
	case b.list.Bad || pseudoBehindRegular(b.list.Fields):
		f.verdict = connError(ProtocolError, "a header block goes on behind a field that is not valid")
		return true
	}
	end := f.has(flagEndHeaders)
	if c.decode(f, &b.list, f.payload, end) {
		return true
	}
	if !end {
		return false
	}
	f.begin(b.header)
	f.list, f.selfDeps = b.list, b.selfDeps
	c.reader.block = nil
	c.finishBlock(f)
	return true
}

// decode decodes a fragment. It reports whether that failed, with the verdict in f. Fields that the list
// has no room for are decoded anyway, as far as the table needs it: so the connection goes on.
func (c *Conn) decode(f *Frame, l *hpack.List, p []byte, last bool) (failed bool) {
	if err := c.reader.dec.Decode(p, last, l); err != nil {
		f.verdict = connError(CompressionError, err.Error())
		return true
	}
	return false
}

// finishBlock makes the checks on the fields of a complete block that don't depend on its stream.
func (c *Conn) finishBlock(f *Frame) {
	if f.list.Bad {
		f.verdict = streamError(ProtocolError, "a name or value of a field is not valid")
		return
	}
	f.request, f.status = Request{}, ""
	f.pseudos = 0
	for i := range f.list.Fields {
		field := &f.list.Fields[i]
		if !field.Name.Class().IsPseudo() {
			continue
		}
		if i > f.pseudos || !f.setPseudo(field, c.cfg.Client) {
			f.verdict = streamError(ProtocolError, "a pseudo-header field is unknown, occurs twice or comes behind others")
			return
		}
		f.pseudos++
	}
}

// setPseudo stores a pseudo-header field. It reports whether the field is allowed and was not set
// before.
func (f *Frame) setPseudo(field *hpack.Field, ofAnswer bool) bool {
	if !ofAnswer {
		return f.request.set(field)
	}
	if field.Name.Class() != hpack.Status || f.pseudos > 0 {
		return false
	}
	f.status = field.Value
	return true
}

// pseudoBehindRegular reports whether a pseudo-header field comes after a regular field.
func pseudoBehindRegular(fields []hpack.Field) bool {
	regular := false
	for i := range fields {
		if !fields[i].Name.Class().IsPseudo() {
			regular = true
		} else if regular {
			return true
		}
	}
	return false
}
