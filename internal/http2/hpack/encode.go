package hpack

import (
	"math"
	"strings"
)

// An Encoder encodes the header blocks that are sent to a peer. Blocks must be encoded in the order
// in which they are sent, so the encoder has one owner at a time.
//
// The peer's decoder learns the size of the table at the beginning of a block (RFC 7541, section
// 4.2). The state for that:
//
//	told    the size that the peer's decoder works with
//	lowest  the smallest size that was set since; the table has been emptied to it
//	max     the size that is set now
//
//	event                                 lowest                max
//	SetLimit, PeerLimit                   min(lowest, new max)  min(limit, peer)
//	Drop, with an entry in the table      0                     stays
//	Begin                                 math.MaxUint32        stays; told = max
type Encoder struct {
	entries []Field // oldest first
	size    uint32  // of the entries
	max     uint32
	told    uint32
	lowest  uint32
	limit   uint32 // our own
	peer    uint32 // SETTINGS_HEADER_TABLE_SIZE
}

// EncoderTableBytes is the default of an Encoder's own limit: room for the dozen short fields that
// a server repeats. It is small because each connection has such a table at both ends.
const EncoderTableBytes = 1024

// MakeEncoder returns an Encoder whose table takes at most limitBytes.
func MakeEncoder(limitBytes uint32) Encoder {
	e := Encoder{limit: limitBytes, peer: DefaultTableBytes, told: DefaultTableBytes, lowest: math.MaxUint32}
	e.resize()
	return e
}

// PeerLimit sets the peer's SETTINGS_HEADER_TABLE_SIZE.
func (e *Encoder) PeerLimit(bytes uint32) {
	e.peer = bytes
	e.resize()
}

// resize applies the limits to the table.
func (e *Encoder) resize() {
	e.max = min(e.limit, e.peer)
	e.lowest = min(e.lowest, e.max)
	e.evict(0)
}

// Drop frees the table. The next block tells the peer to empty its table, too. It is meant for a
// connection that has been quiet.
func (e *Encoder) Drop() {
	if len(e.entries) > 0 {
		e.lowest = 0
	}
	e.entries, e.size = nil, 0
}

// TableBytes returns the size of the table as RFC 7541 counts it.
func (e *Encoder) TableBytes() int { return int(e.size) }

// Begin appends what comes before the first field of a block.
func (e *Encoder) Begin(dst []byte) []byte {
	if e.lowest < e.max && e.lowest < e.told {
		dst = appendInteger(dst, 0x20, 5, e.lowest)
		e.told = e.lowest
	}
	if e.max != e.told {
		dst = appendInteger(dst, 0x20, 5, e.max)
	}
	e.told, e.lowest = e.max, math.MaxUint32
	return dst
}

// statusName is the Name of :status.
var statusName = byWire[":status"]

// AppendStatus appends the field :status with a code of three digits.
func (e *Encoder) AppendStatus(dst []byte, code int) []byte {
	if i := statusIndex(code); i > 0 {
		return append(dst, 0x80|i)
	}
	digits := [3]byte{byte('0' + code/100%10), byte('0' + code/10%10), byte('0' + code%10)}
	return e.Append(dst, Field{Name: statusName, Value: string(digits[:])})
}

// statusIndex returns the index of a code in the static table, or 0.
func statusIndex(code int) byte {
	switch code {
	case 200:
		return 8
	case 204:
		return 9
	case 206:
		return 10
	case 304:
		return 11
	case 400:
		return 12
	case 404:
		return 13
	case 500:
		return 14
	}
	return 0
}

// Append appends a field.
func (e *Encoder) Append(dst []byte, f Field) []byte {
	n := f.Name
	if f.Sensitive || n.policy == secret {
		return e.appendLiteral(dst, 0x10, 4, f)
	}
	for i := int(n.index); i < int(n.indexEnd); i++ {
		if staticTable[i].Value == f.Value {
			return append(dst, 0x80|byte(i))
		}
	}
	if n.policy == once {
		return e.appendLiteral(dst, 0, 4, f)
	}
	if i := e.find(&f); i > 0 {
		return appendInteger(dst, 0x80, 7, uint32(i))
	}
	if size := uint32(f.Size()); size <= e.max/4 {
		dst = e.appendLiteral(dst, 0x40, 6, f) // before an entry with its name goes
		e.add(f, size)
		return dst
	}
	return e.appendLiteral(dst, 0, 4, f)
}

// find returns the index of a field in the dynamic table, or 0.
func (e *Encoder) find(f *Field) int {
	for i := len(e.entries) - 1; i >= 0; i-- {
		if have := &e.entries[i]; have.Value == f.Value && have.Name.is(f.Name) {
			return staticEnd + len(e.entries) - 1 - i
		}
	}
	return 0
}

// nameIndex returns the index of an entry with a name, or 0.
func (e *Encoder) nameIndex(n *Name) int {
	if n.index > 0 {
		return int(n.index)
	}
	for i := len(e.entries) - 1; i >= 0; i-- {
		if e.entries[i].Name.is(n) {
			return staticEnd + len(e.entries) - 1 - i
		}
	}
	return 0
}

// appendLiteral appends a field in one of the literal forms (RFC 7541, section 6.2).
func (e *Encoder) appendLiteral(dst []byte, first byte, prefixBits uint, f Field) []byte {
	i := e.nameIndex(f.Name)
	dst = appendInteger(dst, first, prefixBits, uint32(i))
	if i == 0 {
		dst = appendString(dst, f.Name.wire)
	}
	return appendString(dst, f.Value)
}

// add copies a field into the table: the caller's string may be a part of a long string.
func (e *Encoder) add(f Field, size uint32) {
	f.Value = strings.Clone(f.Value)
	e.evict(size)
	e.entries = append(e.entries, f)
	e.size += size
}

// evict removes the oldest entries until there is room for need bytes.
func (e *Encoder) evict(need uint32) {
	n := 0
	for ; n < len(e.entries) && e.size+need > e.max; n++ {
		e.size -= uint32(e.entries[n].Size())
	}
	if n > 0 {
		m := copy(e.entries, e.entries[n:])
		clear(e.entries[m:])
		e.entries = e.entries[:m]
	}
}
