package pool

import (
	"sync/atomic"

	"github.com/valyala/bytebufferpool"
)

// Only this file knows bytebufferpool, which learns the size that new buffers should
// start with, and leaves to the collector buffers that are larger than most.

// Growable is memory for output that grows by append, in code that doesn't know of pools. The zero
// value holds none. It needs exclusive use.
//
//	p := g.Memory()
//	p = append(p, …)
//	g.Set(p)
//	… // send p
//	g.Release()
//
// It is for output that is in one piece, however long it gets, as that of an HTTP/2 connection.
// Output that may go in pieces has buffers of a fixed size instead, which never move: answers of the
// fast path to HTTP/1.1 collect 4 KiB, the backlog of a reactor's connection is a list of parts.
type Growable struct{ buffer *bytebufferpool.ByteBuffer }

// growing has the memory. This package owns it; it is not the one that all users of bytebufferpool
// share: see the public package's documentation on code that may hold on to memory.
var growing bytebufferpool.Pool

// growables counts those that hold memory. A Growable that was lost without Release counts permanently.
var growables atomic.Int64

// Memory returns memory of length 0, which it takes from the pool if the Growable holds none.
func (g *Growable) Memory() []byte {
	if g.buffer == nil {
		growables.Add(1)
		g.buffer = growing.Get()
	}
	return g.buffer.B[:0]
}

// Set says where append has left the bytes, in Memory's memory or in longer memory, which the Growable
// then owns. It must come between Memory and Release.
func (g *Growable) Set(p []byte) { g.buffer.B = p }

// Release gives the memory back, if the Growable holds any. Memory may be called again.
func (g *Growable) Release() {
	if g.buffer == nil {
		return
	}
	b := g.buffer
	g.buffer = nil
	growables.Add(-1)
	growing.Put(b)
}
