// Package http2 calls an http.Handler for the streams of package h2, as net/http's HTTP/2 server would:
// with the same request, and the same frames for the same calls.
//
// The differences and their reasons:
//
//   - Push returns http.ErrNotSupported. Clients have turned it off.
//   - A body of which the client has reset the stream can't be read any more; net/http lets a handler
//     read what had come before the reset.
//   - A handler is not called for a stream that was reset before its turn.
//   - Trailers whose names must not be trailers reset the stream when the handler reads them, not when
//     they come.
//   - A Write behind the return of the handler fails, and Header returns the header. net/http panics.
package http2
