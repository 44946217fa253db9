package pool

import (
	"sync/atomic"

	"github.com/valyala/bytebufferpool"
)

// Only this file knows bytebufferpool, which learns the size that new buffers should
// start with, and leaves to the collector buffers that are larger than most.

// Growable is a buffer that grows as it is written to. The zero value is empty and
// holds no memory: the first write takes some from a pool that all Growables share.
// It needs exclusive use.
//
// It is for output that must be whole before it is sent, however long it gets. Output that
// may go in pieces has buffers of a fixed size instead, which never move: answers of the
// fast path to HTTP/1.1 collect 4 KiB, the backlog of a reactor's connection is a list of parts.
type Growable struct{ buffer *bytebufferpool.ByteBuffer }

// growing has the memory. This package owns it; it is not the one that all users of bytebufferpool
// share: see the public package's documentation on code that may hold on to memory.
var growing bytebufferpool.Pool

// growables counts those that hold memory. A Growable that was lost without Release counts
// permanently.
var growables atomic.Int64

// grow returns the buffer, which it takes from the pool if there is none yet.
func (g *Growable) grow() *bytebufferpool.ByteBuffer {
	if g.buffer == nil {
		growables.Add(1)
		g.buffer = growing.Get()
	}
	return g.buffer
}

// Write appends p, which it copies. It never fails.
func (g *Growable) Write(p []byte) (int, error) { return g.grow().Write(p) }

// WriteString appends s. It never fails.
func (g *Growable) WriteString(s string) (int, error) { return g.grow().WriteString(s) }

// Bytes returns the written bytes, without copying. The slice is valid until the next
// write or Release.
func (g *Growable) Bytes() []byte {
	if g.buffer == nil {
		return nil
	}
	return g.buffer.B
}

// Memory returns the memory of an empty Growable, for code that appends to memory of others. The
// result of that, which may have moved to longer memory, is what Set takes.
func (g *Growable) Memory() []byte { return g.grow().B[:0] }

// Set makes p the written bytes: the memory of Memory, with bytes in it, or memory in its place,
// which is the Growable's from then on.
func (g *Growable) Set(p []byte) { g.grow().B = p }

// Len returns how many bytes were written.
func (g *Growable) Len() int { return len(g.Bytes()) }

// Release empties the Growable and gives its memory back, if it holds any. It can be
// written to again.
func (g *Growable) Release() {
	if g.buffer == nil {
		return
	}
	b := g.buffer
	g.buffer = nil
	growables.Add(-1)
	growing.Put(b)
}
