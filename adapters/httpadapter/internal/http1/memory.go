package http1

import (
	"bytes"
	"io"
	"os"
	"strings"
	"sync"
)

// Pools of the memory that answers need. Only the Response writes to it, and it is lent to no code
// that is not of the standard library or the adapter's own; a Response lets go of it when it has
// nothing to keep in it.
var (
	bodies = sync.Pool{New: func() any { return new([bodyBytesMax]byte) }}
	outs   = sync.Pool{New: func() any { return new([outBytesCap]byte) }}
	copies = sync.Pool{New: func() any { return new([copyBytes]byte) }}
)

// copyBytes is how many bytes a copy reads at once: as many as with net/http, whose chunks it decides.
const copyBytes = 32 << 10

// takeBody returns the body with memory for the rest of it.
func (w *Response) takeBody() []byte {
	if w.body == nil {
		w.body = bodies.Get().(*[bodyBytesMax]byte)[:0]
	}
	return w.body
}

// releaseBody gives the body's memory back.
func (w *Response) releaseBody() {
	if w.body != nil {
		bodies.Put((*[bodyBytesMax]byte)(w.body[:bodyBytesMax]))
		w.body = nil
	}
}

// takeOut returns out with memory, unless its owner brought some.
func (w *Response) takeOut() []byte {
	if cap(w.out) == 0 {
		w.out, w.pooled = outs.Get().(*[outBytesCap]byte)[:0], true
	}
	return w.out
}

// releaseIdle gives memory back that has nothing in it.
func (w *Response) releaseIdle() {
	if len(w.body) == 0 {
		w.releaseBody()
	}
	if w.pooled && len(w.out) == 0 {
		ReleaseOut(w.out)
		w.out, w.pooled = nil, false
	}
}

// ReleaseOut gives the memory of bytes from [Response.Out] back once they are sent. Memory of another
// size goes to the garbage collector.
func ReleaseOut(out []byte) {
	if cap(out) == outBytesCap {
		outs.Put((*[outBytesCap]byte)(out[:outBytesCap]))
	}
}

// isTrusted reports whether a reader keeps no hold of the memory that it reads into, since it is the
// standard library's. Another's may, though it should not.
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
