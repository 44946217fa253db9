package hpack

import "unsafe"

// A List gets the fields of a header block from [Decoder.Decode]. It is used for one block after the
// other: Reset comes before each.
type List struct {
	// Fields are valid until the next Reset; their strings for as long as they are referred to.
	Fields []Field

	// Truncated is set when a field is beyond the limits. It and those behind it are left out.
	Truncated bool

	// Bad is set when a field is left out because it isn't valid. [Field.Valid] has the rules.
	Bad bool

	// Strings, if not nil, interns table entries.
	Strings *Interner

	left    int    // bytes that more fields may have, by their Size
	count   int    // fields that may still come
	longest uint32 // bytes that a string may have
	chunk   []byte // for strings that no table keeps
	scratch []byte // of the string that is being decoded
}

// Reset prepares for a block whose fields may have so many bytes, by their Size, and be so many.
func (l *List) Reset(bytesMax, fieldsMax int) {
	clear(l.Fields)
	if l.Fields = l.Fields[:0]; cap(l.Fields) > keptFields {
		l.Fields = nil
	}
	if cap(l.scratch) > keptBytes {
		l.scratch = nil
	}
	l.Truncated, l.Bad, l.chunk = false, false, nil
	l.left, l.count, l.longest = bytesMax, fieldsMax, uint32(bytesMax)
}

// A List keeps the memory that ordinary blocks need.
const (
	keptFields = 256
	keptBytes  = 16 << 10
)

// truncate leaves out a field, and all later ones.
func (l *List) truncate() { l.Truncated, l.left, l.count = true, 0, 0 }

// add takes a field as far as the limits go.
func (l *List) add(f *Field) {
	n := len(f.Name.wire) + len(f.Value) + entryOverhead // as Size, without a copy of f
	if n > l.left || l.count == 0 {
		l.truncate()
		return
	}
	l.left -= n
	l.count--
	if !f.Valid() {
		l.Bad = true
		return
	}
	l.Fields = append(l.Fields, *f)
}

// chunkBytesMax is the longest chunk of strings, and so the most that a string keeps alive.
const chunkBytesMax = 2 << 10

// text returns a string of b, in a chunk that it shares with others of the block. restBytes is what is
// left of the fragment: a new chunk has room for its strings, too.
func (l *List) text(b []byte, restBytes int) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > chunkBytesMax/2 {
		return string(b)
	}
	if len(b) > cap(l.chunk)-len(l.chunk) {
		l.chunk = make([]byte, 0, min(len(b)+restBytes+restBytes/2, chunkBytesMax))
	}
	at := len(l.chunk)
	l.chunk = append(l.chunk, b...)
	return unsafe.String(&l.chunk[at], len(b)) // nothing writes to these bytes again
}
