package hpack

// An Error says which rule of RFC 7541 a header block broke. The decoder's table is then out of
// step with the peer, so the connection ends with COMPRESSION_ERROR.
type Error string

// Error returns the reason.
func (e Error) Error() string { return "hpack: " + string(e) }

// The errors of a Decoder.
const (
	ErrIndex      Error = "index of no entry"
	ErrInteger    Error = "integer too long"
	ErrHuffman    Error = "invalid Huffman code or padding"
	ErrSizeUpdate Error = "table size update above the limit, or behind a field, or missing"
	ErrTruncated  Error = "header block ends in a field"
)
