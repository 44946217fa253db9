// Package pool lends out byte buffers and takes them back.
//
// A [Buffer] starts with one reference, its owner's. An owner that passes it on to
// another user calls Retain for that user, and each calls Release once when done.
// After the last Release the next Get of that size gets the memory.
//
//	b := pool.Get(n)
//	defer b.Release()
//	m, err := conn.Read(b.Bytes())
//
// [Pool.GetBytes] and [Pool.PutBytes] lend bare slices, for interfaces that know
// nothing of references, such as gRPC's mem.BufferPool. [Growable] is a buffer that
// grows as it is written to.
//
// Memory comes as its last user left it: it is not zeroed, and an owner of secrets
// clears them before Release. Code that may hold on to memory after it said that it
// was done, as abandoned Reads do, must not be given memory of a pool.
//
// # Kept memory
//
// Released memory waits in a sync.Pool for each size, from which the garbage collector takes a
// buffer that two collections in a row find unused. So a pool keeps at most the buffers in use a
// short time ago, and an idle process keeps nothing. Config.KeptBytesMax bounds it further. Memory
// in use is not limited.
//
// # Mistakes
//
// A Release too many panics. A buffer that is never released is lost to the pool
// only: the garbage collector takes it, and Stats.Leaked counts it. Of 1 in
// Config.LeakSampleEvery buffers the pool remembers the stack that got it, and Leaks
// lists it if the buffer leaks. A checking build (-tags invariants) remembers it of all, fills
// released memory with 0xCC, and panics at the use of a released buffer and, when
// memory is lent again, if it was written to after its release.
package pool
