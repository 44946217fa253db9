package request

import (
	"bytes"
	"io"
	"os"
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

// IsShort reports whether a body that is as long as its request says is in memory, and short.
func IsShort(body io.Reader, length int64) bool {
	return 0 < length && length <= shortBytesMax && unwrap(body) != nil
}

// HasOtherLength reports whether a body in memory is not as long as its request says.
func HasOtherLength(body io.Reader, length int64) bool {
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

// MemoryOf returns the reader in memory that body is or hides, if its WriteTo writes the memory itself,
// once; or nil.
func MemoryOf(body io.Reader) interface {
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

// AppendShort appends a body for which IsShort is true.
func AppendShort(b []byte, body io.Reader, length int) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, length)...)
	_, err := io.ReadFull(body, b[start:])
	return b, err
}

// FileOf returns the file that a body is or hides, so that the kernel can send it.
func FileOf(body io.Reader) (*os.File, bool) {
	f, ok := unhide(body).(*os.File)
	return f, ok
}

// unhide returns the reader that io.NopCloser has wrapped, or r.
func unhide(r io.Reader) io.Reader {
	switch reflect.TypeOf(r) {
	case nopCloser, nopCloserWriterTo:
		return reflect.ValueOf(r).Field(0).Interface().(io.Reader)
	}
	return r
}
