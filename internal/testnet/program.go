package testnet

// A Program is bytes that a fuzzer has chosen, to be read as numbers. It ends with zeros.
type Program []byte

// Next returns the next byte, or 0 at the end.
func (p *Program) Next() int {
	if len(*p) == 0 {
		return 0
	}
	n := int((*p)[0])
	*p = (*p)[1:]
	return n
}

// Take returns the next n bytes, or fewer at the end.
func (p *Program) Take(n int) []byte {
	b := (*p)[:min(n, len(*p))]
	*p = (*p)[len(b):]
	return b
}
