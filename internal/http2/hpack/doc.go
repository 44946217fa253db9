// Package hpack is the header compression of HTTP/2 (RFC 7541) for a server: without input, output,
// clock or goroutine.
//
//	fragments of a header block ──► Decoder.Decode ──► List (fields, within its limits)
//	fields ──► Encoder.Append ──► bytes of a header block
//
// A [Field] points to its [Name], which holds everything that depends on the name only: the canonical
// key of a header map, the class that a server branches on, the index in the static table. The names
// in common use are shared by the whole program; another name is worked out once, when it enters the
// table of a connection. So an indexed field, of which a warm connection sends little else, costs a
// copy of 32 bytes.
//
// # Memory
//
// Decoder and Encoder hold their tables and, between the fragments of one block, the beginning of a
// field that is not whole. Everything else belongs to the [List], which a worker uses for one block
// after the other. A string of a table entry has memory of its own. The strings of fields that no
// table keeps share chunks of at most 2 KiB, so a caller that keeps one of them keeps 2 KiB at most
// besides. No string points into the bytes that the decoder was given.
//
// An [Interner] saves the copies of values that many clients send: it hands out one string for equal
// values of the names that describe a program rather than a person.
//
// # Limits
//
// The table of the decoder is as long as the server has announced, integers have 32 bits and six
// bytes, a string is no longer than the list may be. Fields beyond the limits of the list are left
// out, and List.Truncated says so; the table stays in step with the peer's.
//
// None of the types may be used by two goroutines at once, except for an Interner and the Names.
package hpack
