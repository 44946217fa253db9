package request

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"reflect"
	"strings"

	buffers "github.com/percore/percore/internal/pool"
)

// shortBytesMax is the longest body that the caller sends with the header. The kernel's buffer of an
// idle connection takes both at once, so the caller doesn't wait for a server that doesn't read them.
const shortBytesMax = 8 << 10

// inMemory is the interface of the standard library's readers in memory.
type inMemory interface {
	io.Reader
	Len() int
}

// IsShort reports whether the body, which is as long as the request says, is in memory and short, and is
// sent without asking.
func (r *Request) IsShort() bool {
	return !r.Expects && 0 < r.Length && r.Length <= shortBytesMax && unwrap(r.Body) != nil
}

// AppendShort appends a body for which IsShort is true, and closes it.
func (r *Request) AppendShort(b []byte) ([]byte, error) {
	start := len(b)
	b = append(b, make([]byte, r.Length)...)
	_, err := io.ReadFull(r.Body, b[start:])
	r.BodyRead = true
	return b, cmp.Or(err, r.Body.Close())
}

// HasOtherLength reports whether a body in memory is not as long as its request says.
func HasOtherLength(body io.Reader, length int64) bool {
	r := unwrap(body)
	return r != nil && int64(r.Len()) != length
}

// unwrap returns the reader in memory that body is, or that http.NewRequest has wrapped; or nil.
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

// PieceBytes is how many bytes are read at once of a body of unknown length.
const PieceBytes = 32 << 10

// ReadMemory returns size bytes to read a body into, and what to call when nothing reads it any more. A
// reader of the user's might keep them, so they serve others only behind one that KeepsNothing.
func ReadMemory(body io.Reader, size int) (p []byte, release func()) {
	if !KeepsNothing(body) {
		return make([]byte, size), func() {}
	}
	pooled := buffers.GetBytes(size)
	return (*pooled)[:size], func() { buffers.PutBytes(pooled) }
}

// KeepsNothing reports whether a body is that of a request to a server of package httpadapter, also as a
// ReverseProxy passes it on: it doesn't keep the memory that it is read into.
func KeepsNothing(body io.Reader) bool {
	v := reflect.ValueOf(body)
	if nameOf(v) == "net/http/httputil.noopCloseReader" && v.Elem().NumField() > 0 {
		if v = v.Elem().Field(0); v.Kind() != reflect.Interface {
			return false
		}
		v = v.Elem()
	}
	switch nameOf(v) {
	case ownPackages + "h1.requestBody", ownPackages + "httpstream.body":
		return true
	}
	return false
}

const ownPackages = "github.com/percore/percore/adapters/httpadapter/internal/"

// nameOf returns the name of the struct that v points to, with the path of its package, or "".
func nameOf(v reflect.Value) string {
	if v.Kind() != reflect.Pointer || v.Type().Elem().Kind() != reflect.Struct {
		return ""
	}
	t := v.Type().Elem()
	return t.PkgPath() + "." + t.Name()
}
