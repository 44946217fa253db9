// Package pool lends out byte buffers and takes them back. Its public face, with the contracts of
// Buffer, Get, GetBytes and their like, is github.com/percore/percore/pool, which is [Default].
//
// Besides, there are pools of one's own ([New]), [Buffer.Discard] for memory that code may hold on to
// that is not known, and [Growable], a buffer that grows as it is written to.
package pool
