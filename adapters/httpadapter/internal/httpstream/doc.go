// Package httpstream calls an http.Handler for the streams of package h2, as net/http's HTTP/2
// server would: the handler gets the same request, and the same calls send the same frames.
//
// The differences and their reasons:
//
//   - Push returns http.ErrNotSupported: clients have turned push off.
//   - If the client has reset the stream, its body can't be read any more; net/http lets a handler
//     read what had arrived before the reset.
//   - A handler is not called for a stream that was reset before it was served.
//   - Trailers with names that are not allowed in trailers reset the stream when the handler reads
//     them, not when they arrive.
//   - After status 400 for a connection-specific field the stream is reset with PROTOCOL_ERROR (RFC
//     9113, sections 8.1.1 and 8.2.2); net/http ends it.
//   - A Write after the handler has returned fails, and Header returns the header. net/http panics.
package httpstream
