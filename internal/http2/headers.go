package http2

import (
	"encoding/binary"

	"github.com/percore/percore/internal/http2/hpack"
)

// A block is a header block of several frames that is not complete yet. The limits on the list and on
// the number of frames bound it.
type block struct {
	header               // of the HEADERS frame
	list      hpack.List // what has come
	selfDeps  bool
	frames    int // CONTINUATION
	wireBytes int
}

// parseHeaders handles a HEADERS frame. It reports whether the block is complete, or wrong.
func (r *reader) parseHeaders(cfg *Config, f *Frame) bool {
	f.list.Reset(cfg.HeaderListBytes, cfg.HeaderFields)
	p, v := f.unpad()
	if v.scope != fine {
		f.verdict = v
		return true
	}
	if r.decode(f, &f.list, p, f.has(flagEndHeaders)) {
		return true
	}
	if f.has(flagEndHeaders) {
		f.finishBlock(cfg.side())
		return true
	}
	r.block = &block{header: f.header, list: f.list, selfDeps: f.selfDeps, wireBytes: len(p)}
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
func (r *reader) continueBlock(cfg *Config, f *Frame) bool {
	b := r.block
	b.frames++
	b.wireBytes += len(f.payload)
	switch {
	case b.frames > cfg.continuationsMax() || b.wireBytes > cfg.blockBytesMax():
		f.verdict = limitError(HeaderLimit, "a header block is too long")
		return true
	case b.list.Bad || pseudoBehindRegular(b.list.Fields):
		f.verdict = connError(ProtocolError, "a header block goes on behind a field that is not valid")
		return true
	}
	end := f.has(flagEndHeaders)
	if r.decode(f, &b.list, f.payload, end) {
		return true
	}
	if !end {
		return false
	}
	f.begin(b.header)
	f.list, f.selfDeps = b.list, b.selfDeps
	r.block = nil
	f.finishBlock(cfg.side())
	return true
}

// decode decodes a fragment. It reports whether that failed, with the verdict in f. Fields for which the
// list has no room are decoded as far as the table needs it, so the connection can go on.
func (r *reader) decode(f *Frame, l *hpack.List, p []byte, last bool) (failed bool) {
	if err := r.dec.Decode(p, last, l); err != nil {
		f.verdict = connError(CompressionError, err.Error())
		return true
	}
	return false
}

// finishBlock makes the checks on the fields of a complete block that don't depend on its stream.
func (f *Frame) finishBlock(of side) {
	if f.list.Bad {
		f.verdict = streamError(ProtocolError, "a name or value of a field is not valid")
		return
	}
	f.request, f.status = Request{}, ""
	f.pseudos, f.seen = 0, 0
	for i := range f.list.Fields {
		field := &f.list.Fields[i]
		if !field.Name.Class().IsPseudo() {
			continue
		}
		if i > f.pseudos || !of.pseudo(f, field) {
			f.verdict = streamError(ProtocolError, "a pseudo-header field is unknown, occurs twice or comes behind others")
			return
		}
		f.pseudos++
	}
}

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
