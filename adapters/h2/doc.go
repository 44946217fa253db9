// Package h2 serves HTTP/2 (RFC 9113) at the level of streams. It is for proxies, RPC systems and
// servers of other protocols that need more, or less, than an http.Handler. A stream has a header, a
// body and trailers in each direction, flow-control windows, and a reset. A [Client] is the other side.
//
//	ln, err := percore.Listen("tcp", ":7000")
//	...
//	server := h2.New(h2.HandlerFunc(echo), h2.Config{})
//	err = server.Serve(ln)
//
//	func echo(s *h2.Stream, r *h2.Request) {
//		_ = s.Send(h2.Message{Status: 200})
//		_, _ = io.Copy(s, s)
//		_ = s.Send(h2.Message{End: true})
//	}
//
// # What runs where
//
// No goroutine belongs to a connection. When bytes arrive, a goroutine of a pool takes the
// connection's turn: it reads what is there, finds the frames, passes the streams to the [Handler],
// and lets the connection wait again. Each stream is then served on a goroutine of the pool, which
// may block. So a waiting connection holds neither a goroutine nor a buffer, and handlers on one
// connection don't hold each other up.
//
// Connections from other packages' listeners are served too, each with a goroutine that reads. So
// are percore's connections off Linux and with the build tag percore_net.
//
// # Blocking
//
//	call                              waits for
//	Stream.Read                       bytes of the body, its end, a deadline
//	Stream.Send, Write                the windows of stream and connection, as far as there is a body; room
//	                                  in the connection's output; a deadline
//	Stream.Flush                      the socket, unless another goroutine is sending already; a client's Send
//	                                  and Write do the same
//	Conn.Open                         room for another stream; then the same as Send
//	Stream.Answer, AwaitEnd           the header of an answer, its end
//	Server.Serve                      the end of the listener or of the server
//	Drain, Server.Shutdown            the streams that are open
//	all others                        nothing
//
// # Sending
//
// The frames of all streams of a connection go into one output. It is sent when the last queued
// handler returns, and soon in any case. So a single system call answers a burst of requests, and a
// handler that blocks doesn't hold back other answers. The bytes of a long Write are sent without
// being copied. When several streams send, their DATA frames take turns, or go in the order of their
// priorities: see [Config.Priorities].
//
// # Memory
//
// Send and Write don't keep their arguments. Incoming bodies are held until Read has taken them, as
// far as the windows allow, and are dropped when the stream is reset. A handler may keep the fields
// and strings of a request for as long as it likes.
//
// # Errors
//
//	error                   of
//	io.EOF                  Read: the body has ended
//	*StreamError            the peer or this side has reset the stream
//	*ConnError              the connection has ended; Unwrap has the reason, if there is one
//	os.ErrDeadlineExceeded  Read: the deadline has passed. (A write deadline that passes resets the stream.)
//	ErrEnded                Send and Write after the end of the answer; all calls after StreamHandler.Serve has returned
//
// # Limits
//
// [Config] limits everything that a peer can make the server do: streams, handlers, header fields,
// useless frames, resets, waiting bytes, times. All limits are on by default. A connection that
// exceeds one is closed with ENHANCE_YOUR_CALM.
package h2
