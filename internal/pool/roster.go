package pool

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// record is the pool's knowledge of one buffer. It is apart from the buffer, so that
// the counts outlive it.
//
//	refs         the buffer is                   changed by
//	0            kept                            begin: to 1
//	1 and more   in use                          Retain: +1, Release: -1
//	dropped      unowned, and never lent again  drop: from 0; Discard: from 1
//
// begin's writes are plain ones, though Stats may read the words at the same time. Get owes its speed
// to that: an atomic one would add a third to a Get and Release. It is safe because a buffer that is
// handed out has one user, to whom sync.Pool has passed all earlier writes, and because a read of a
// machine word finds a value that was written (go.dev/ref/mem, "Implementation Restrictions for
// Programs Containing Data Races"). At worst Stats misses a Get that is just returning.
type record struct {
	refs  uint32
	gets  uint // how often it was handed out
	bytes int64
	stack atomic.Pointer[[]uintptr] // where it was got, if this is sampled

	_ [64 - 32]byte // a line of its own: Release writes to it
}

const dropped = 1 << 31

// begin gives the first reference to a buffer that nothing else can reach.
//
//go:norace
func (r *record) begin() {
	r.refs = 1
	r.gets++
}

// look returns the references and the gets.
//
//go:norace
func (r *record) look() (references uint32, gets uint64) {
	return r.references(), uint64(r.gets)
}

func (r *record) references() uint32 { return atomic.LoadUint32(&r.refs) &^ dropped }

// kept reports whether the buffer waits for its next user.
func (r *record) kept() bool { return atomic.LoadUint32(&r.refs) == 0 }

// drop notes that the buffer is left to the collector.
func (r *record) drop() { atomic.StoreUint32(&r.refs, dropped) }

// stackMax is the depth of the stacks: a handler under net/http or gRPC is some 15 frames deep.
const stackMax = 32

// sample remembers, 1 in every times, the stack of the buffer's user, which has called Get,
// which has called observe.
func (r *record) sample(every int) {
	switch {
	case every > 0 && (every == 1 || rand.IntN(every) == 0):
		stack := make([]uintptr, stackMax)
		stack = stack[:runtime.Callers(4, stack)]
		r.stack.Store(&stack)
	case r.stack.Load() != nil:
		r.stack.Store(nil) // of an earlier user
	}
}

// leak describes the buffer as one that was not released.
func (r *record) leak() leak {
	l := leak{bytes: r.bytes}
	if stack := r.stack.Load(); stack != nil {
		l.stack = *stack
	}
	return l
}

// roster lists the buffers that the collector has not taken, and has the counts of those that it has.
type roster struct {
	mu      sync.Mutex
	entries []entry
	sweepAt int                // how many entries there are when those of dead buffers go
	misses  uint64             // buffers ever added
	gets    uint64             // of dead ones
	leaked  uint64             // dead ones that were in use
	leaks   []leak             // of these, sampled ones
	swept   weak.Pointer[mark] // dead once the collector has run since the last sweep
}

type entry struct {
	buffer weak.Pointer[Buffer]
	record *record
}

// mark is an object for the collector to take. Its size is such that it has memory of
// its own: the runtime packs smaller ones together.
type mark [16]byte

const (
	sweepMin = 64  // entries that are worth a sweep
	leaksMax = 100 // leaks that are remembered; a program that leaks does so in a few places
)

// add makes the record of a new buffer.
func (r *roster) add(b *Buffer, bytes int) {
	b.record = &record{bytes: int64(bytes)}
	buffer := weak.Make(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.entries) >= max(r.sweepAt, sweepMin) {
		r.sweepLocked(func(*record) {})
	}
	r.entries = append(r.entries, entry{buffer, b.record})
	r.misses++
}

// sweepLocked visits the records of the buffers that are alive and takes the others out.
func (r *roster) sweepLocked(visit func(*record)) {
	alive := r.entries[:0]
	for _, e := range r.entries {
		if e.buffer.Value() != nil {
			visit(e.record)
			alive = append(alive, e)
			continue
		}
		references, gets := e.record.look()
		r.gets += gets
		if references > 0 {
			r.leaked++
			if l := e.record.leak(); l.stack != nil && len(r.leaks) < leaksMax {
				r.leaks = append(r.leaks, l)
			}
		}
	}
	clear(r.entries[len(alive):])
	r.entries = alive
	// As many again may be added before the next: a sweep costs each of them as much as
	// looking at two entries.
	r.sweepAt = 2 * len(alive)
	r.swept = weak.Make(new(mark))
}

// outdated reports whether the collector has run since the last sweep.
func (r *roster) outdated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.swept.Value() == nil
}
