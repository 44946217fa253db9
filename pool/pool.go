// Package pool lends out byte buffers and takes them back, so that a program with many connections
// doesn't need a buffer for each, and its garbage collector has less to do.
//
//	b := pool.Get(n)
//	defer b.Release()
//	m, err := conn.Read(b.Bytes())
//
// A [Buffer] starts with one reference, which belongs to its owner. An owner that passes the buffer
// on calls Retain for the receiver, and each of them calls Release once when done. After the last
// Release, the next Get of that size gets the memory. [GetBytes] and [PutBytes] lend bare slices
// instead, for interfaces that know nothing about references. [Configure] limits the memory that is
// kept, [Stats] counts it.
//
// Memory is not zeroed: its next owner sees what the last one left, so clear secrets before Release.
// Don't pass memory from the pool to code that may use it after it has returned. percore's reads and
// writes don't use it after they return.
//
// One Release too many panics. If a buffer is never released, the garbage collector takes it,
// Stats.Leaked counts it, and [CheckLeaks] describes it. A checking build (-tags invariants) also
// fills released memory with 0xCC, panics when a released buffer is used, and, when it lends memory
// again, panics if that was written to after its release.
package pool

import (
	"fmt"

	engine "github.com/percore/percore/internal/pool"
)

// Get returns a buffer of n bytes with one reference; the caller must Release it. Its capacity is the
// smallest power of two, from 1 KiB to 1 MiB, that holds n; above that it is n, and the memory is not
// kept. The bytes are as their last user left them. Get panics if n is negative. It may be called by
// any goroutine at any time, and does not block.
func Get(n int) *Buffer { return (*Buffer)(engine.Get(n)) }

// Buffer is a reference-counted piece of memory. Get makes one.
//
// All holders of a reference may call Retain, Release and Bytes at the same time; they don't block. The
// slice that Bytes returns is only lent: after the last Release the memory belongs to another user.
type Buffer engine.Buffer

// Bytes returns the bytes without copying, with the length that was asked for and the capacity of the
// buffer. They may be read and written until the caller's reference is released.
func (b *Buffer) Bytes() []byte { return (*engine.Buffer)(b).Bytes() }

// SetLen changes the length to n: it keeps the first n bytes, or exposes the bytes that happen to lie
// behind the last one. It needs exclusive use of the buffer. It panics unless 0 ≤ n ≤ the capacity.
func (b *Buffer) SetLen(n int) { (*engine.Buffer)(b).SetLen(n) }

// Retain adds a reference, for one more call of Release. The caller must hold one already. It panics
// if the buffer has been released.
func (b *Buffer) Retain() { (*engine.Buffer)(b).Retain() }

// Release gives up one reference; its holder must not use the buffer or its bytes any more. The last
// Release returns the memory to the pool. Release panics if there is no reference left. But if the
// buffer has already been handed out again, it takes away the new user's reference, which nothing
// can detect.
func (b *Buffer) Release() { (*engine.Buffer)(b).Release() }

// GetBytes returns n bytes, with the capacities that Get has, for interfaces that pass on bare slices,
// such as gRPC's mem.BufferPool. The caller owns them until it calls PutBytes, and may reslice them in
// place. It may be called by any goroutine at any time, and does not block.
func GetBytes(n int) *[]byte { return engine.GetBytes(n) }

// PutBytes takes back a slice from GetBytes: the pointer, and in it a prefix of the bytes with their
// full capacity. The caller must not use either any more. A slice with a capacity that GetBytes never
// returns is left to the garbage collector. Only a checking build can detect that bytes were put back
// twice: there PutBytes panics. It may be called by any goroutine at any time, and does not block.
func PutBytes(bytes *[]byte) {
	if bytes == nil {
		panic("pool: PutBytes was called with nil: pass what GetBytes has returned")
	}
	engine.PutBytes(bytes)
}

// Config sets up the pool. The zero value is the default.
//
// Released memory waits in a sync.Pool for each size, from which the garbage collector takes a buffer
// that two collections in a row find unused. So the pool keeps at most the buffers in use a short time
// ago, and an idle process keeps nothing. Memory in use is not limited.
type Config struct {
	// KeptBytesMax limits the bytes in released buffers of Get further. With 0 only the garbage
	// collector limits them; with a negative number nothing is kept. The limit costs two operations on
	// a word that all processors share for each Get and Release, and may be exceeded by buffers
	// that were released since the last garbage collection.
	KeptBytesMax int64

	// LeakSampleEvery makes one in this many Gets, on average, remember its stack for [CheckLeaks].
	// That takes about a microsecond. 0 means none, or in a checking build all.
	LeakSampleEvery int
}

// Configure changes the configuration. It may be called by any goroutine at any time; buffers in use
// come under the new configuration when they are released.
func Configure(c Config) {
	if c.LeakSampleEvery < 0 {
		panic(fmt.Sprintf("pool: Config.LeakSampleEvery is %d: want 0, for the default, or more", c.LeakSampleEvery))
	}
	engine.Default().Configure(engine.Config(c))
}

// CheckLeaks returns an error that describes the buffers in use and those that leaked, or nil. Tests
// call it at their end. It takes about 50 ns for each buffer, during which a Get that has to
// allocate waits.
func CheckLeaks() error { return engine.CheckLeaks() }

// Stats counts the pool's work since the program started, and the buffers that it holds;
// percore.ReadStats returns it. While buffers are handed out and released, the numbers may not be
// from exactly the same moment. A lost buffer from GetBytes may count as in use for as long as
// others of its size are kept.
type Stats struct {
	// These only grow.
	Gets    uint64 // buffers handed out by Get and GetBytes
	Misses  uint64 // of these, the ones that had to allocate memory
	Leaked  uint64 // buffers that the garbage collector took while they were in use
	Foreign uint64 // slices passed to PutBytes that can't be from GetBytes

	// These are the present values.
	BuffersInUse int   // handed out and not released
	BytesInUse   int64 // their capacity
	BytesKept    int64 // capacity of released buffers of Get that the collector has not taken
	KeptBytesMax int64 // Config.KeptBytesMax: the bound of BytesKept; 0: only the collector's work bounds it
}
