// Package http2 is the core of an HTTP/2 server (RFC 9113): without input, output, clock or
// goroutine. Bytes and calls go in, events and bytes come out. A driver, which reads, writes and
// waits, and the users of its streams stand above it.
//
//	bytes ──► Conn.Parse ──► Frame ──► Conn.Apply ──► Event        reading
//	                                       │
//	                                       ▼ answers of the protocol
//	Conn.Headers, Data, Trailers, Reset ──► output ──► bytes        sending
//	Conn.Consumed, Discarded ─────────────────┘                     credit
//
// [Conn.Parse] finds frames, decodes header blocks and checks what a frame breaks by itself. It
// touches its own half of the connection, so it needs no lock. [Conn.Apply] and the other methods
// change the other half: streams, windows, settings, the encoder's table, the output. They stand
// below one lock of the driver's, and none does more than a frame's work.
//
// # Streams
//
// The state of a stream is one of RFC 9113, section 5.1; states.go has the diagram as a table. A
// caller brings the memory of a stream ([Conn.Open]). A stream that has ended is forgotten; the
// last eight that were reset are remembered, so that frames which cross the reset are no error.
//
// # The judge
//
// Which error a frame is, of the stream or of the connection, in which order the checks are made,
// and what is let pass, is as with net/http's server, which is tested frame by frame. The
// differences:
//
//   - A request that is wrong opens its stream (section 5.1.1), so a later frame on that stream is not one on
//     an idle stream.
//   - DATA and trailers on a stream that this side has reset are ignored (section 5.1). net/http answers DATA
//     by RST_STREAM again, and ends the connection for trailers.
//   - HEADERS with more padding than payload end the connection, as the RFC has it; net/http goes on without
//     having decoded them, out of step with the client's table.
//   - A payload that is too short for its padding's length or its priority ends the connection by GOAWAY;
//     net/http hangs up.
//   - A method that is no token is an error of the stream.
//   - With extended CONNECT, :scheme, :path and :authority must be there, and the method be CONNECT (RFC 8441,
//     section 4).
//   - A table size update behind a field is an error (RFC 7541, section 4.2), even with an empty table.
//   - An error behind a graceful GOAWAY is said by another one; net/http hangs up.
//   - Some limits are lower, and some are additional; see [Config].
//
// # Memory
//
// A connection without streams has no memory besides the Conn and the tables of HPACK: no buffer,
// and no rest of a frame unless the client stopped in the middle of one. [Conn.Rest] frees the
// encoder's table.
//
// # Limits
//
// [Config] has all limits with their defaults and the attacks that they are for. limits_test.go
// attacks each.
package http2
