package hpack

// DefaultTableBytes is the size of both tables until SETTINGS_HEADER_TABLE_SIZE says otherwise (RFC
// 9113, section 6.5.2).
const DefaultTableBytes = 4096

// A Decoder decodes the header blocks that a peer sends. Its zero value is not ready; see [MakeDecoder].
type Decoder struct {
	table   table[*Field]
	rest    *[]byte // the end of a fragment: the beginning of a field; nil: none
	skip    uint32  // bytes to come of a string that is too long to be read
	inName  bool    // the string is a name, and its value comes next
	inBlock bool    // a field of the block has arrived
	shrink  bool    // the next block must begin with a size update
}

// MakeDecoder returns a Decoder whose table may have the default size.
func MakeDecoder() Decoder {
	return Decoder{table: table[*Field]{max: DefaultTableBytes, limit: DefaultTableBytes}}
}

// SetLimit changes the size that the peer may give its table. Set a higher limit when it is
// announced, and a lower limit when the peer has acknowledged it. The next block must then begin
// with a size update if the table was larger (RFC 7541, section 4.2).
func (d *Decoder) SetLimit(bytes uint32) {
	d.table.limit = bytes
	d.shrink = d.table.max > bytes
}

// Trim frees the memory of the table that no entry takes.
func (d *Decoder) Trim() { d.table.trim() }

// Decode adds the fields of a fragment to l; last is set for the last fragment of a block. The
// error, if any, is an [Error]; the Decoder can't be used after an error. Decode does not keep p.
func (d *Decoder) Decode(p []byte, last bool, l *List) error {
	whole := p
	if d.rest != nil {
		*d.rest = append(*d.rest, p...)
		whole = *d.rest
	}
	n, err := d.fields(whole, l)
	if err != nil {
		return err
	}
	if n > 0 || d.rest == nil { // else all of d.rest stays: copying it for each fragment would cost its square
		d.keepRest(whole[n:])
	}
	if !last {
		return nil
	}
	if d.inBlock = false; d.rest != nil || d.skip > 0 || d.inName {
		return ErrTruncated
	}
	return nil
}

// keepRest keeps the beginning of a field, which may be a part of d.rest.
func (d *Decoder) keepRest(rest []byte) {
	if len(rest) == 0 {
		d.rest = nil
		return
	}
	if d.rest == nil {
		d.rest = new([]byte)
	}
	*d.rest = append((*d.rest)[:0], rest...)
}

// fields decodes the complete fields, and returns how many bytes they have.
func (d *Decoder) fields(p []byte, l *List) (used int, err error) {
	c := cursor{p: p}
	for len(c.p) > 0 {
		at := len(p) - len(c.p)
		if d.skip > 0 || d.inName {
			if !d.skipString(&c) {
				return at, c.err
			}
			continue
		}
		b := c.p[0]
		if b&0xe0 != 0x20 && !d.inBlock {
			if d.inBlock = true; d.shrink {
				return at, ErrSizeUpdate
			}
		}
		ok := false
		switch {
		case b >= 0x80:
			ok = d.indexed(&c, l)
		case b >= 0x40:
			ok = d.literal(&c, l, 6, true)
		case b >= 0x20:
			ok = d.sizeUpdate(&c)
		default:
			ok = d.literal(&c, l, 4, false)
		}
		if c.err != nil || !ok {
			return at, c.err
		}
	}
	return len(p), nil
}

// indexed decodes a field that refers to a table entry (RFC 7541, section 6.1).
func (d *Decoder) indexed(c *cursor, l *List) bool {
	i, ok := c.integer(7)
	if !ok {
		return false
	}
	f := d.entry(i)
	if f == nil {
		c.err = ErrIndex
		return false
	}
	l.add(f)
	return true
}

// entry returns the entry with an index (RFC 7541, section 2.3.3), or nil.
func (d *Decoder) entry(i uint32) *Field {
	switch {
	case i == 0 || i > 1<<30:
		return nil
	case i < uint32(staticEnd):
		return &staticTable[i]
	}
	entries := d.table.entries // its methods are not inlined, as they are generic
	if at := len(entries) + staticEnd - 1 - int(i); at >= int(d.table.head) {
		return entries[at]
	}
	return nil
}

// sizeUpdate changes the size of the table (RFC 7541, section 6.3).
func (d *Decoder) sizeUpdate(c *cursor) bool {
	n, ok := c.integer(5)
	if !ok {
		return false
	}
	if n > d.table.limit || d.inBlock {
		c.err = ErrSizeUpdate
		return false
	}
	d.table.setMax(n)
	d.shrink = false
	return true
}

// skipString skips as much as has come of a string that is too long to be read.
func (d *Decoder) skipString(c *cursor) bool {
	if d.skip == 0 {
		s, ok := c.begin()
		d.skip, d.inName = s.bytes, !ok
		return ok
	}
	n := min(uint64(d.skip), uint64(len(c.p)))
	d.skip -= uint32(n)
	c.p = c.p[n:]
	return true
}

// longestText returns how long a string may be that is read. A longer one is too long for both the list
// and the table, since it has at least 8/30 of its length when it is decoded.
func (d *Decoder) longestText(l *List) uint64 {
	return max(uint64(l.longest), 4*uint64(d.table.max))
}

// tooLong leaves out a field with a string of n bytes that is too long to be read. An entry that is
// larger than the table empties it (RFC 7541, section 4.4).
func (d *Decoder) tooLong(l *List, n uint32, isName, intoTable bool) {
	d.skip, d.inName = n, isName
	if intoTable {
		d.table.clear()
	}
	l.truncate()
}

// literal decodes a field with a literal value and perhaps a literal name (RFC 7541, section 6.2). It
// adds the field to the table if intoTable is set.
func (d *Decoder) literal(c *cursor, l *List, prefixBits uint, intoTable bool) bool {
	sensitive := !intoTable && c.p[0]&0x10 != 0
	name, wire, ok := d.literalName(c, prefixBits)
	if !ok {
		return false
	}
	longest := d.longestText(l)
	if uint64(wire.bytes) > longest {
		d.tooLong(l, wire.bytes, true, intoTable)
		return true
	}
	if name == nil && !c.take(&wire) {
		return false
	}
	value, ok := c.begin()
	if !ok {
		return false
	}
	if uint64(value.bytes) > longest {
		d.tooLong(l, value.bytes, false, intoTable)
		return true
	}
	if !c.take(&value) {
		return false
	}
	if !intoTable && l.Truncated {
		return true // not needed: save the work of decoding it
	}
	if name == nil {
		if name = l.name(c, wire); name == nil {
			return false
		}
	}
	b := l.decode(c, value)
	if c.err != nil {
		return false
	}
	if !intoTable {
		value := l.text(b, len(c.p))
		l.add(&Field{Name: name, Value: value, Sensitive: sensitive, badValue: !ValidValue(value)})
		return true
	}
	var f *Field
	if name.shared {
		f = l.Strings.field(name, b)
	} else {
		f = newField(name, string(b))
	}
	d.table.add(f)
	l.add(f)
	return true
}

// literalName decodes the name of a literal field: the name of an entry, or the beginning of a string.
func (d *Decoder) literalName(c *cursor, prefixBits uint) (name *Name, wire text, ok bool) {
	i, ok := c.integer(prefixBits)
	if !ok {
		return nil, text{}, false
	}
	if i == 0 {
		wire, ok = c.begin()
		return nil, wire, ok
	}
	f := d.entry(i)
	if f == nil {
		c.err = ErrIndex
		return nil, text{}, false
	}
	return f.Name, text{}, true
}

// A text is a string in the form in which it was sent.
type text struct {
	p       []byte
	bytes   uint32
	huffman bool
}

// begin reads the beginning of a string, which says how long it is (RFC 7541, section 5.2).
func (c *cursor) begin() (s text, ok bool) {
	if len(c.p) == 0 {
		return text{}, false
	}
	s.huffman = c.p[0] >= 0x80
	s.bytes, ok = c.integer(7)
	return s, ok
}

func (c *cursor) take(s *text) (ok bool) {
	if uint64(s.bytes) > uint64(len(c.p)) {
		return false
	}
	s.p, c.p = c.p[:s.bytes], c.p[s.bytes:]
	return true
}

// decode returns the bytes of a string. They are valid until the next call.
func (l *List) decode(c *cursor, s text) []byte {
	if !s.huffman {
		return s.p
	}
	l.scratch, c.err = appendDecoded(l.scratch[:0], s.p)
	return l.scratch
}

// name returns the Name of a string, or nil if the string is wrong.
func (l *List) name(c *cursor, s text) *Name {
	b := l.decode(c, s)
	if c.err != nil {
		return nil
	}
	return l.Strings.name(b)
}
