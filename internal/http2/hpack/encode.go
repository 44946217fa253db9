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
//	max     the size that is set now, of the table
//
//	event                                 lowest                max
//	PeerLimit                             min(lowest, new max)  min(our own limit, the peer's)
//	Drop, with an entry in the table      0                     stays
//	Begin                                 math.MaxUint32        stays; told = max
type Encoder struct {
	table  table[Field] // its limit is our own
	told   uint32
	lowest uint32
}

// EncoderTableBytes is the default of an Encoder's own limit: room for the dozen short fields that a
// server repeats. It is small because each connection has such a table at both ends.
const EncoderTableBytes = 1024

// MakeEncoder returns an Encoder whose table takes at most limitBytes.
func MakeEncoder(limitBytes uint32) Encoder {
	e := Encoder{table: table[Field]{limit: limitBytes}, told: DefaultTableBytes, lowest: math.MaxUint32}
	e.PeerLimit(DefaultTableBytes)
	return e
}

// PeerLimit sets the peer's SETTINGS_HEADER_TABLE_SIZE.
func (e *Encoder) PeerLimit(bytes uint32) {
	e.table.setMax(min(e.table.limit, bytes))
	e.lowest = min(e.lowest, e.table.max)
}

// Drop frees the table, after a quiet time. The next block tells the peer to empty its table, too.
func (e *Encoder) Drop() {
	if e.table.len() > 0 {
		e.lowest = 0
	}
	e.table = table[Field]{max: e.table.max, limit: e.table.limit}
}

// Begin appends what comes before the first field of a block.
func (e *Encoder) Begin(dst []byte) []byte {
	max := e.table.max
	if e.lowest < max && e.lowest < e.told {
		dst = appendInteger(dst, 0x20, 5, e.lowest)
		e.told = e.lowest
	}
	if max != e.told {
		dst = appendInteger(dst, 0x20, 5, max)
	}
	e.told, e.lowest = max, math.MaxUint32
	return dst
}

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
	if uint32(f.Size()) <= e.table.max/4 {
		dst = e.appendLiteral(dst, 0x40, 6, f) // before an entry with its name goes
		e.add(f)
		return dst
	}
	return e.appendLiteral(dst, 0, 4, f)
}

// find returns the index of a field in the dynamic table, or 0.
func (e *Encoder) find(f *Field) int {
	last := len(e.table.entries) - 1
	for i := last; i >= int(e.table.head); i-- {
		if have := &e.table.entries[i]; have.Value == f.Value && have.Name.is(f.Name) {
			return staticEnd + last - i
		}
	}
	return 0
}

// nameIndex returns the index of an entry with a name, or 0.
func (e *Encoder) nameIndex(n *Name) int {
	if n.index > 0 {
		return int(n.index)
	}
	last := len(e.table.entries) - 1
	for i := last; i >= int(e.table.head); i-- {
		if e.table.entries[i].Name.is(n) {
			return staticEnd + last - i
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
func (e *Encoder) add(f Field) {
	f.Value = strings.Clone(f.Value)
	e.table.add(f)
}
