// Package pool lends out byte buffers and takes them back. Its public face, with the contracts of
// Buffer, Get, GetBytes and their like, is github.com/percore/percore/pool, which is [Default].
//
// This package adds separate pools ([New]), [Buffer.Discard] for memory that unknown code may still
// hold, and [Growable], memory that grows by append.
package pool
