// Package hpack implements HPACK, the header compression of HTTP/2 (RFC 7541). It has no input, output,
// clock or goroutine.
//
//	fragments of a header block ──► Decoder.Decode ──► List (fields, within its limits)
//	fields ──► Encoder.Append ──► bytes of a header block
//
// A [Field] points to its [Name], which has everything that depends only on the name: the canonical key
// of a header map, the class that a server branches on, the index in the static table. The whole program
// shares the common names. Any other name is worked out once, when it enters the table of a connection.
// A warm connection sends mostly indexed fields, which cost only a copy of 32 bytes each.
//
// # Memory
//
// Decoder and Encoder hold their tables and, between the fragments of one block, the beginning of an
// incomplete field. Everything else belongs to the [List], which a worker uses for one block after the
// other. The strings of a table entry have memory of their own. Strings of fields that are in no table
// share chunks, so a caller that keeps such a string keeps at most 2 KiB alive. No string points into
// the bytes that were passed to the decoder.
//
// An [Interner] avoids copies of fields that many clients send: it returns the same entry for equal
// fields, but only for names that describe a program and not a person.
//
// # Limits
//
// The decoder's table is at most as large as the server has announced. Integers have at most 32 bits
// and six bytes. A string is at most as long as the list may be. Fields beyond the limits of the
// list are left out, and List.Truncated reports it; the table still stays in step with the peer's.
//
// Only an Interner and the Names may be used by several goroutines at once.
package hpack
