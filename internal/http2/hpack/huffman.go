package hpack

// The Huffman code of RFC 7541, appendix B, is canonical: codes of one length follow each other in the
// order of their symbols, and longer codes follow shorter ones. So the lengths alone define the code.

// codeBits has the length of the code of each symbol. The end of the string, the 257th symbol, has 30
// bits, all ones, and must not occur.
var codeBits = [256]uint8{
	13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
	28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
	6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
	5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
	13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
	7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
	15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
	6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
	20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
	24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
	22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
	21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
	26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
	19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
	20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
	26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
}

const (
	codeBitsMin = 5
	codeBitsMax = 30
	quickBits   = 10 // how many bits the first lookup uses; nearly all text fits
)

// A quick is the symbol that some bits begin with. bits is 0 if its code is longer.
type quick struct{ symbol, bits uint8 }

// A rank has the codes of one length.
type rank struct {
	end    uint32 // the code after the last one, at the upper end of 32 bits
	offset uint32 // of the symbols, minus the first code
}

// codes holds the code, worked out from the lengths.
var codes = makeCodes()

type huffmanCodes struct {
	code    [256]uint32 // by symbol
	symbols [256]uint8  // in the order of their codes
	ranks   [codeBitsMax + 1]rank
	quick   [1 << quickBits]quick
}

func makeCodes() *huffmanCodes {
	h := new(huffmanCodes)
	code, n := uint32(0), uint32(0)
	for bits := uint8(codeBitsMin); bits <= codeBitsMax; bits++ {
		code <<= 1
		h.ranks[bits].offset = n - code
		for symbol, b := range codeBits {
			if b == bits {
				h.code[symbol], h.symbols[n] = code, uint8(symbol)
				h.fillQuick(code, quick{uint8(symbol), bits})
				code++
				n++
			}
		}
		h.ranks[bits].end = code << (32 - bits)
	}
	return h
}

// fillQuick enters a code once for each combination of bits that may follow it.
func (h *huffmanCodes) fillQuick(code uint32, q quick) {
	if q.bits > quickBits {
		return
	}
	rest := quickBits - q.bits
	for i := code << rest; i < (code+1)<<rest; i++ {
		h.quick[i] = q
	}
}

// long returns the symbol that bits begin with, if its code is longer than quickBits. bits are at
// the upper end of 32. ok is false for the code that ends a string.
func (h *huffmanCodes) long(bits uint32) (symbol, n uint8, ok bool) {
	for n := uint8(quickBits + 1); n <= codeBitsMax; n++ {
		if r := &h.ranks[n]; bits < r.end {
			return h.symbols[bits>>(32-n)+r.offset], n, true
		}
	}
	return 0, 0, false
}

// appendDecoded appends the text of a Huffman-coded string. It is at most 8/5 as long as p.
func appendDecoded(dst, p []byte) ([]byte, error) {
	h := codes
	var bits uint64 // at the upper end
	have := uint(0) // of bits
	for {
		for ; have <= 56 && len(p) > 0; p = p[1:] {
			bits |= uint64(p[0]) << (56 - have)
			have += 8
		}
		if have < codeBitsMax {
			return h.appendEnd(dst, bits, have)
		}
		for have >= codeBitsMax {
			q := h.quick[bits>>(64-quickBits)]
			if q.bits == 0 {
				var ok bool
				if q.symbol, q.bits, ok = h.long(uint32(bits >> 32)); !ok {
					return dst, ErrHuffman
				}
			}
			dst = append(dst, q.symbol)
			bits <<= q.bits
			have -= uint(q.bits)
		}
	}
}

// appendEnd appends the text of the last bits, fewer than the longest code has. At most 7 bits
// follow the last symbol, all ones (RFC 7541, section 5.2).
func (h *huffmanCodes) appendEnd(dst []byte, bits uint64, have uint) ([]byte, error) {
	for have >= codeBitsMin {
		q := h.quick[bits>>(64-quickBits)]
		if q.bits == 0 {
			q.symbol, q.bits, _ = h.long(uint32(bits >> 32))
		}
		if q.bits == 0 || uint(q.bits) > have {
			break
		}
		dst = append(dst, q.symbol)
		bits <<= q.bits
		have -= uint(q.bits)
	}
	if have > 7 || bits != ^uint64(0)<<(64-have) {
		return dst, ErrHuffman
	}
	return dst, nil
}

// huffmanBytes returns how long s is in the Huffman code.
func huffmanBytes(s string) int {
	n := uint(0)
	for i := 0; i < len(s); i++ {
		n += uint(codeBits[s[i]])
	}
	return int((n + 7) / 8)
}

// appendHuffman appends s in the Huffman code.
func appendHuffman(dst []byte, s string) []byte {
	h := codes
	var bits uint64 // at the lower end
	have := uint(0) // of bits
	for i := 0; i < len(s); i++ {
		n := codeBits[s[i]]
		bits = bits<<n | uint64(h.code[s[i]])
		for have += uint(n); have >= 8; {
			have -= 8
			dst = append(dst, byte(bits>>have))
		}
	}
	if have > 0 {
		dst = append(dst, byte(bits<<(8-have))|byte(0xff>>have))
	}
	return dst
}

// appendString appends a string, in the shorter form (RFC 7541, section 5.2).
func appendString(dst []byte, s string) []byte {
	if n := huffmanBytes(s); n < len(s) {
		dst = appendInteger(dst, 0x80, 7, uint32(n))
		return appendHuffman(dst, s)
	}
	dst = appendInteger(dst, 0, 7, uint32(len(s)))
	return append(dst, s...)
}
