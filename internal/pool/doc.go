// Package pool lends out byte buffers and takes them back. Its public face, with the contracts of
// Buffer, Get, GetBytes and their like, is github.com/percore/percore/pool, which is [Default].
//
// Besides, there are separate pools ([New]), [Buffer.Discard] for memory that unknown code may hold on
// to, and [Growable], memory that grows by append.
package pool
