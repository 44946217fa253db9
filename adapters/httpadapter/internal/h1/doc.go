// Package h1 serves HTTP/1: it reads requests from percore's connections, in cleartext or over TLS,
// calls an http.Handler for them as net/http's server would, and lets connections wait without a
// goroutine. It is to HTTP/1 what packages h2 and httpstream are to HTTP/2. Package http1 parses and
// writes the messages.
//
// # Who owns a connection
//
// A [Conn] has one owner at a time: the accept loop, a handshake, the loop while it waits, or a
// worker for a turn. state.go has a table of the states, and how each is left. The worker's turn
// (turn.go) reads what is there and serves the requests in it: an exchange is a request and its
// answer. http1.Scan takes plain requests, and http.ReadRequest the others, from memory (odd.go).
// The handler reads the body (body.go, chunks.go) from the connection. An [Answer] is the part of an
// answer that is sent after the handler has returned.
//
// While a handler runs, the engine's callback is armed, so that the end of the client's stream is
// noticed (wake.go). TLS is another transport, which reads differently (tls_transport.go).
//
// # The server around it
//
// A [Server] is one call of Serve. Its [Host] handles the rest: whether the http.Server shuts down,
// drains or keeps connections alive; the hooks for a new connection; and connections that switch to
// another protocol (switch.go). In a handover a [Mover] takes connections out of service.
//
// The user's hooks, and handlers that hijack, see a connection as a netConn (user.go), which hides
// the package's own methods.
package h1
