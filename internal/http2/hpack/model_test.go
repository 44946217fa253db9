package hpack

import (
	"errors"
	"math/big"
)

// The model decodes a header block as RFC 7541 reads, slowly: bit by bit, with the table as a list whose
// newest entry comes first, and a whole block at once. Its limits are those of Decoder and List.

type modelField struct {
	name, value string
	sensitive   bool
}

func (f modelField) size() int { return len(f.name) + len(f.value) + 32 }

type model struct {
	entries []modelField
	max     int
	limit   int
}

var errModel = errors.New("decoding error")

func (m *model) tableSize() (n int) {
	for _, f := range m.entries {
		n += f.size()
	}
	return n
}

func (m *model) evict() {
	for m.tableSize() > m.max {
		m.entries = m.entries[:len(m.entries)-1]
	}
}

func (m *model) at(i int64) (modelField, error) {
	if i >= 1 && i <= int64(len(staticFields)) {
		f := staticFields[i-1]
		return modelField{name: f.name, value: f.value}, nil
	}
	if i -= int64(len(staticFields)) + 1; i >= 0 && i < int64(len(m.entries)) {
		return m.entries[i], nil
	}
	return modelField{}, errModel
}

// decode returns the fields of a block without regard to the limits of the list's length.
func (m *model) decode(p []byte) (fields []modelField, err error) {
	for len(p) > 0 {
		b := p[0]
		var f modelField
		switch {
		case b&0x80 != 0:
			var i int64
			if i, p, err = modelInteger(p, 7); err == nil {
				f, err = m.at(i)
			}
			f.sensitive = false
		case b&0xc0 == 0x40:
			f, p, err = m.literal(p, 6)
			if err == nil {
				if m.entries = append([]modelField{f}, m.entries...); f.size() > m.max {
					m.entries = nil
				}
				m.evict()
			}
		case b&0xe0 == 0x20:
			var n int64
			if n, p, err = modelInteger(p, 5); err == nil && (n > int64(m.limit) || len(fields) > 0) {
				err = errModel
			}
			if err == nil {
				m.max = int(n)
				m.evict()
				continue
			}
		default:
			f, p, err = m.literal(p, 4)
			f.sensitive = b&0x10 != 0
		}
		if err != nil {
			return nil, err
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func (m *model) literal(p []byte, prefix uint) (f modelField, rest []byte, err error) {
	i, p, err := modelInteger(p, prefix)
	if err != nil {
		return f, p, err
	}
	if i == 0 {
		f.name, p, err = m.text(p)
	} else if f, err = m.at(i); err == nil {
		f.sensitive = false
	}
	if err == nil {
		f.value, p, err = m.text(p)
	}
	return f, p, err
}

func modelInteger(p []byte, prefix uint) (int64, []byte, error) {
	if len(p) == 0 {
		return 0, nil, errModel
	}
	v := new(big.Int).SetUint64(uint64(p[0]) & (1<<prefix - 1))
	if v.Uint64() < 1<<prefix-1 {
		return v.Int64(), p[1:], nil
	}
	for i := 1; i < len(p) && i <= integerBytesMax; i++ {
		part := new(big.Int).SetUint64(uint64(p[i] & 0x7f))
		v.Add(v, part.Lsh(part, uint(7*(i-1))))
		if p[i]&0x80 == 0 {
			if v.BitLen() > 32 {
				return 0, nil, errModel
			}
			return v.Int64(), p[i+1:], nil
		}
	}
	return 0, nil, errModel
}

func (m *model) text(p []byte) (string, []byte, error) {
	if len(p) == 0 {
		return "", nil, errModel
	}
	huffman := p[0]&0x80 != 0
	n, p, err := modelInteger(p, 7)
	if err != nil || n > int64(len(p)) {
		return "", nil, errModel
	}
	s := string(p[:n])
	if huffman {
		s, err = modelHuffman(p[:n])
	}
	return s, p[n:], err
}

// modelCodes has the symbols by their codes, written as zeros and ones.
var modelCodes = func() map[string]byte {
	byCode := make(map[string]byte)
	code := uint32(0)
	for bits := 1; bits <= codeBitsMax; bits++ {
		code <<= 1
		for symbol := range 256 {
			if int(codeBits[symbol]) == bits {
				byCode[modelBits(code, bits)] = byte(symbol)
				code++
			}
		}
	}
	return byCode
}()

func modelBits(code uint32, n int) string {
	s := make([]byte, n)
	for i := range s {
		s[i] = '0' + byte(code>>(n-1-i)&1)
	}
	return string(s)
}

func modelHuffman(p []byte) (string, error) {
	var out, code []byte
	ones := true
	for _, b := range p {
		for i := 7; i >= 0; i-- {
			bit := b >> i & 1
			ones = ones && bit == 1
			code = append(code, '0'+bit)
			if symbol, ok := modelCodes[string(code)]; ok {
				out, code, ones = append(out, symbol), code[:0], true
			}
			if len(code) > codeBitsMax {
				return "", errModel
			}
		}
	}
	if len(code) > 7 || !ones {
		return "", errModel
	}
	return string(out), nil
}
