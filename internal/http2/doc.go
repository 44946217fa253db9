// Package http2 is the core of an HTTP/2 server or client (RFC 9113), without input, output, clock or
// goroutine. Bytes and calls go in, events and bytes come out. Above it are a driver, which reads,
// writes and waits, and the users of its streams.
//
//	bytes ──► Conn.Parse ──► Frame ──► Conn.Apply ──► Event        reading
//	                                       │
//	                                       ▼ answers of the protocol
//	Conn.Headers, Data, Trailers, Reset ──► output ──► bytes        sending
//	Conn.Consumed, Discarded ─────────────────┘                     credit
//
// A server opens the streams that come with Conn.Open, and a client opens its own with Conn.Begin:
// see [Config.Client]. Everything else is the same for both.
//
// [Conn.Parse] finds frames, decodes header blocks and makes the checks that need only the frame itself.
// It uses only its own half of the connection, so it needs no lock. [Conn.Apply] and the other methods
// change the other half: streams, windows, settings, the encoder's table, the output. The driver calls
// them with one lock held, and each does the work of one frame at most.
//
// # Streams
//
// A stream has the states of RFC 9113, section 5.1; states.go has the diagram as a table. A stream that
// has ended is forgotten, but if this side has reset it that is remembered, for at least the last 15,360
// streams: frames that cross the reset are not errors.
//
// # The judge
//
// net/http's server is the model for which frames are errors of the stream or of the connection, for
// the order of the checks, and for which violations are tolerated. The tests compare the two frame
// by frame. The differences:
//
//   - A malformed request opens its stream (section 5.1.1), so a later frame on that stream is not
//     a frame on an idle stream.
//   - DATA and trailers on a stream that this side has reset are ignored (section 5.1). net/http
//     answers DATA with another RST_STREAM, and ends the connection for trailers.
//   - A header block that is too long, or contains a string that is, is decoded as far as the table
//     needs it, and only its request is refused. net/http ends the connection for such strings, for
//     frames of twice the limit, and for CONTINUATION beyond the limit.
//   - HEADERS with more padding than payload end the connection, as the RFC requires. net/http goes
//     on without decoding them, out of step with the client's table.
//   - A payload that is too short for its padding length or its priority ends the connection with
//     GOAWAY; net/http just closes it.
//   - A method that is not a token is a stream error.
//   - With extended CONNECT, :scheme, :path and :authority must be present, and the method must be
//     CONNECT (RFC 8441, section 4).
//   - A table size update after a field is an error (RFC 7541, section 4.2), even with an empty
//     table.
//   - SETTINGS may have a setting twice: the last value counts (section 6.5.3). net/http treats it
//     as an error.
//   - An error after a graceful GOAWAY is reported with another GOAWAY; net/http just closes the
//     connection.
//   - Some limits are lower, and some are additional; see [Config].
//
// # Memory
//
// A connection without streams holds only the Conn and the HPACK tables. It has no buffer, and holds
// part of a frame only if the client stopped in the middle of it. [Conn.Rest] frees the encoder's table.
//
// # Limits
//
// [Config] lists all limits with their defaults. [Budget] has a table of what uses up its limits and
// what earns them back, the attacks that they stop, and the honest clients that come closest to
// them. limits_test.go attacks each limit, and honest_test.go plays these clients.
package http2
