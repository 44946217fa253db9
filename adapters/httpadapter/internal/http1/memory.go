package http1

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/percore/percore/internal/pool"
)

// Pools of the memory that answers need. Only the Response writes to it, and lends it only to code in
// the standard library or the adapter.
var (
	bodies = sync.Pool{New: func() any { return new([bodyBytesMax]byte) }}
	outs   = sync.Pool{New: func() any { return new([outBytesCap]byte) }}
	copies = sync.Pool{New: func() any { return new([copyBytes]byte) }}
)

// copyBytes is how many bytes a copy reads at once: as in net/http, since it decides the chunks' size.
const copyBytes = 32 << 10

// takeBody returns the body, with memory for more of it.
func (w *Response) takeBody() []byte {
	if w.body == nil {
		w.body = bodies.Get().(*[bodyBytesMax]byte)[:0]
	}
	return w.body
}

func (w *Response) releaseBody() {
	if w.body != nil {
		bodies.Put((*[bodyBytesMax]byte)(w.body[:bodyBytesMax]))
		w.body = nil
	}
}

// takeOut returns out, with memory for more of it.
func (w *Response) takeOut() []byte {
	if cap(w.out) == 0 {
		w.out = outs.Get().(*[outBytesCap]byte)[:0]
	}
	return w.out
}

// releaseIdle returns empty memory to the pools.
func (w *Response) releaseIdle() {
	if len(w.body) == 0 {
		w.releaseBody()
	}
	if len(w.out) == 0 {
		ReleaseOut(w.out)
		w.out = nil
	}
}

// ReleaseOut takes back the memory of [Response.Out]'s bytes. Memory of another size is left to the
// garbage collector.
func ReleaseOut(out []byte) {
	if cap(out) == outBytesCap {
		outs.Put((*[outBytesCap]byte)(out[:outBytesCap]))
	}
}

// isTrusted reports whether a reader is known not to keep the memory that it reads into. Others might,
// though they should not.
func isTrusted(r io.Reader) bool {
	for {
		switch v := r.(type) {
		case *io.LimitedReader:
			r = v.R
		case *os.File, *bytes.Reader, *strings.Reader:
			return true
		default:
			return false
		}
	}
}

// A Body can be copied by CopyBody.
type Body interface {
	io.Reader

	// Left returns how many bytes are to come, or -1 if that isn't known.
	Left() int64

	// WaitsWithoutMemory reports whether ReadPooled needs no memory while it waits, and gets more at a
	// time if there is more room.
	WaitsWithoutMemory() bool

	// ReadPooled waits for bytes, and then reads them into size bytes of package pool's memory, which is
	// the caller's. p is nil if it failed before.
	ReadPooled(size int) (p *[]byte, n int, err error)
}

// longCopyBytes is how many bytes CopyBody reads at once of a long body.
const longCopyBytes = 64 << 10

// CopyBody is io.Copy for the method WriteTo of a body. If the writer is known not to keep memory, a
// long body is read in longer pieces, into memory of the pool. Other writers might keep it, and see
// bytes of other bodies there. For these a short body takes no more memory than it needs.
func CopyBody(w io.Writer, body Body) (written int64, err error) {
	_, isFile := w.(*os.File)
	_, copies := w.(io.ReaderFrom)
	left := body.Left()
	isShort := 0 <= left && left <= copyBytes
	switch {
	case !isShort && (isFile || w == io.Discard) && body.WaitsWithoutMemory():
		return copyPooled(w, body)
	case isShort && !copies && left > 0:
		return io.CopyBuffer(w, justReader{body}, make([]byte, left))
	}
	return io.Copy(w, justReader{body})
}

func copyPooled(w io.Writer, body Body) (written int64, err error) {
	for err == nil {
		var n int
		if n, err = writePooled(w, body); n > 0 {
			written += int64(n)
		}
	}
	if err == io.EOF {
		err = nil
	}
	return written, err
}

// writePooled reads from body, and writes what it has read. An error of the writer comes first.
func writePooled(w io.Writer, body Body) (n int, err error) {
	p, n, err := body.ReadPooled(longCopyBytes)
	if p == nil {
		return 0, err
	}
	defer pool.PutBytes(p)
	if n > 0 {
		var failure error
		if n, failure = w.Write((*p)[:n]); failure != nil {
			err = failure
		}
	}
	return n, err
}

// justReader and justWriter hide all other methods from io.Copy.
type (
	justReader struct{ r io.Reader }
	justWriter struct{ w io.Writer }
)

func (j justReader) Read(p []byte) (int, error)  { return j.r.Read(p) }
func (j justWriter) Write(p []byte) (int, error) { return j.w.Write(p) }
