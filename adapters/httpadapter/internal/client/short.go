package client

import (
	"bytes"
	"io"
	"reflect"
	"strings"
)

// shortBytesMax is the longest body that the caller sends with the header. The kernel's buffer of a
// connection that was idle takes both at once, so the caller doesn't wait for a server that answers
// without having read them.
const shortBytesMax = 8 << 10

// inMemory is the interface of the standard library's readers in memory.
type inMemory interface {
	io.Reader
	Len() int
}

// isShort reports whether a body that is as long as its request says is in memory, and short.
func isShort(body io.Reader, length int64) bool {
	return 0 < length && length <= shortBytesMax && unwrap(body) != nil
}

// hasOtherLength reports whether a body in memory is not as long as its request says.
func hasOtherLength(body io.Reader, length int64) bool {
	r := unwrap(body)
	return r != nil && int64(r.Len()) != length
}

// unwrap returns the reader in memory that body is or that it hides: http.NewRequest wraps those that it
// knows. It is nil if there is none.
func unwrap(body io.Reader) inMemory {
	switch r := unhide(body).(type) {
	case *bytes.Reader:
		return r
	case *bytes.Buffer:
		return r
	case *strings.Reader:
		return r
	}
	return nil
}

// memoryOf returns the reader in memory that body is or hides, if its WriteTo writes the memory itself,
// once; or nil.
func memoryOf(body io.Reader) interface {
	inMemory
	io.WriterTo
} {
	switch r := unwrap(body).(type) {
	case *bytes.Reader:
		return r
	case *bytes.Buffer:
		return r
	}
	return nil
}

// The types that io.NopCloser returns.
var (
	nopCloser         = reflect.TypeOf(io.NopCloser(nil))
	nopCloserWriterTo = reflect.TypeOf(io.NopCloser(struct {
		io.Reader
		io.WriterTo
	}{}))
)

// appendShort appends a body for which isShort is true.
func appendShort(b []byte, body io.Reader, length int) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, length)...)
	_, err := io.ReadFull(body, b[start:])
	return b, err
}
