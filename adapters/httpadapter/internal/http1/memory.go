package http1

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// Pools of the memory that answers need. Only the Response writes to it, and lends it only to code
// in the standard library or the adapter. A Response gives it back when it has nothing to keep in
// it.
var (
	bodies = sync.Pool{New: func() any { return new([bodyBytesMax]byte) }}
	outs   = sync.Pool{New: func() any { return new([outBytesCap]byte) }}
	copies = sync.Pool{New: func() any { return new([copyBytes]byte) }}
)

// copyBytes is how many bytes a copy reads at once. It is the same as in net/http, since it decides
// the size of the chunks.
const copyBytes = 32 << 10

// takeBody returns the body, with memory for more of it.
func (w *Response) takeBody() []byte {
	if w.body == nil {
		w.body = bodies.Get().(*[bodyBytesMax]byte)[:0]
	}
	return w.body
}

// releaseBody returns the body's memory to its pool.
func (w *Response) releaseBody() {
	if w.body != nil {
		bodies.Put((*[bodyBytesMax]byte)(w.body[:bodyBytesMax]))
		w.body = nil
	}
}

// takeOut returns out, with memory from the pool if its owner supplied none.
func (w *Response) takeOut() []byte {
	if cap(w.out) == 0 {
		w.out, w.pooled = outs.Get().(*[outBytesCap]byte)[:0], true
	}
	return w.out
}

// releaseIdle returns empty memory to the pools.
func (w *Response) releaseIdle() {
	if len(w.body) == 0 {
		w.releaseBody()
	}
	if w.pooled && len(w.out) == 0 {
		ReleaseOut(w.out)
		w.out, w.pooled = nil, false
	}
}

// ReleaseOut takes back the memory of bytes from [Response.Out] once they are sent. Memory of
// another size is left to the garbage collector.
func ReleaseOut(out []byte) {
	if cap(out) == outBytesCap {
		outs.Put((*[outBytesCap]byte)(out[:outBytesCap]))
	}
}

// isTrusted reports whether a reader is one of the standard library's, which don't keep the memory
// they read into. Other readers might, though they should not.
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
