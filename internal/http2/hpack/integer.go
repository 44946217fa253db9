package hpack

import "math"

// integerBytesMax is how many bytes of an integer may follow the prefix: as many as 32 bits need, and
// one more for encoders that pad.
const integerBytesMax = 6

// A cursor reads a header block. Its methods report false if there is not enough: with err set if
// more bytes would not help.
type cursor struct {
	p   []byte
	err error
}

// integer reads an integer with a prefix of some bits (RFC 7541, section 5.1). There must be a byte.
func (c *cursor) integer(prefixBits uint) (v uint32, ok bool) {
	mask := byte(1<<prefixBits - 1)
	if b := c.p[0] & mask; b < mask {
		c.p = c.p[1:]
		return uint32(b), true
	}
	return c.longInteger(uint64(mask))
}

// longInteger reads an integer that exceeds its prefix.
func (c *cursor) longInteger(prefix uint64) (uint32, bool) {
	v := prefix
	for i, b := range c.p[1:] {
		if i == integerBytesMax {
			break
		}
		v += uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			if v > math.MaxUint32 {
				break
			}
			c.p = c.p[i+2:]
			return uint32(v), true
		}
	}
	if v > math.MaxUint32 || len(c.p) > integerBytesMax {
		c.err = ErrInteger
	}
	return 0, false
}

// appendInteger appends an integer with a prefix of some bits, in a byte that has first otherwise.
func appendInteger(dst []byte, first byte, prefixBits uint, v uint32) []byte {
	mask := uint32(1<<prefixBits - 1)
	if v < mask {
		return append(dst, first|byte(v))
	}
	dst = append(dst, first|byte(mask))
	for v -= mask; v >= 0x80; v >>= 7 {
		dst = append(dst, byte(v)|0x80)
	}
	return append(dst, byte(v))
}
