// Package pool lends out reference-counted byte buffers and takes them back.
//
// A Buffer starts with one reference, its owner's. Whoever passes it on to be
// used later calls Retain for them, and everybody calls Release once when done;
// the last Release gives the memory back to the pool, where the next Get finds
// it. Slice makes a view of part of a buffer that shares its bytes and keeps
// them alive.
//
//	b := pool.Get(n)
//	defer b.Release()
//	m, err := conn.Read(b.Bytes())
//
// # Kinds
//
//   - Get: a fixed capacity, the next power of two from ClassBytesMin to
//     ClassBytesMax. What is larger is allocated for this one use and never kept.
//   - Growable: starts empty and grows as it is written to.
//   - GetBytes and PutBytes: the same memory as a bare *[]byte, for interfaces
//     that know nothing of reference counts, such as gRPC's mem.BufferPool.
//
// Memory is handed out as its last user left it: it is not zeroed, and an owner
// of secrets clears them before Release.
//
// # What is kept
//
// A pool keeps at most Config.KeptBytesMax bytes in released buffers, and the
// garbage collector takes back what two collections in a row find unused, so
// that an idle process keeps nothing. What is in use is not limited. Stats tells
// how much there is of both.
//
// # Mistakes
//
// One Release too many panics, always. Other use after the last Release panics
// in a checking build (-tags invariants), which also fills released memory with
// 0xCC, panics if that was written to when the memory is handed out again, and
// remembers the stack of each acquire, retain and release to print them with
// such a panic. A buffer that is never released is only lost to the pool: the
// garbage collector takes it and Stats.Leaked counts it. Leaks lists the buffers
// still out, in a checking build with these stacks.
//
// # Concurrency
//
// A Pool may be used by any number of goroutines; no method waits for another
// goroutine for longer than it takes to count or to list buffers. For a Buffer
// the rules are those of a slice: Retain, Release, Slice, Bytes, Len and Cap may
// be called at the same time by all who hold a reference; what changes it,
// SetLen, Grow, Write, WriteString and ReadFrom, may not run at the same time as
// anything but Retain and Release.
package pool
