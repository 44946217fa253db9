// Package wsadapter lets a server's WebSocket connections wait without goroutines and without read
// buffers. It works below an unchanged WebSocket library: gorilla/websocket, coder/websocket,
// gobwas/ws, and others that read from the connection that Hijack returns.
//
//	func (h *hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
//		up := wsadapter.NewUpgrade(w)
//		ws, err := h.upgrader.Upgrade(up, r, nil) // gorilla's, unchanged
//		if err != nil {
//			return
//		}
//		wsadapter.Start(up.Conn(), &client{hub: h, ws: ws})
//	}
//
//	type message struct {
//		kind int
//		data []byte
//	}
//
//	func (c *client) Read() (m message, err error) {
//		m.kind, m.data, err = c.ws.ReadMessage()
//		return m, err
//	}
//
//	func (c *client) Handle(m message) error { ... } // was the body of the loop around ReadMessage
//	func (c *client) End(err error)          { ... } // was after that loop
//
// [Start] calls Read and Handle in turn, as the loop would, on a goroutine from a pool. When there
// is nothing to read, the goroutine goes back to the pool, and the connection holds only the
// library's own state until the peer sends something. There are as many goroutines as messages being
// handled now or within the last tenth of a second: see below. Writes don't change: any goroutine
// may write with the library at any time.
//
// A goroutine serves one connection after the other. When it goes back, its profile labels
// (runtime/pprof) and debug.SetPanicOnFault are reset. If it is still locked to its thread
// (runtime.LockOSThread), it ends, and the thread with it.
//
// # How a Read with nothing to read ends
//
// A library reads ahead: its buffer may hold a second message while the kernel has no bytes left, so
// [percore.Conn.OnReadable] alone would let that message wait forever. And its read can't be
// interrupted, because in most libraries the first read error is permanent. So the [Conn] watches
// the library read. When the library asks for bytes
//
//   - on the goroutine that the Session's Read was called on,
//   - between two messages, which the Conn knows from the headers of the frames that have passed,
//   - and there are none, neither in the kernel nor in crypto/tls,
//
// then the library has returned all messages that have come, or it would not ask. The Conn then
// answers with an empty message of its own, called the marker. The library returns it as if the peer
// had sent it, which proves that the library's buffer is empty. The adapter drops the marker and
// arms the connection.
//
// The library handles a ping or a pong that comes alone as usual, and the connection waits again. A
// close message, the end of the stream, a deadline that has passed and Close make the library's read
// fail, as usual.
//
// The marker is an empty text message. If Read skips it because it wants binary messages only, an empty
// binary message follows. So Read must return an empty message without closing the connection, and
// should do nothing but read: decode and check in Handle, which never gets the marker. If Read decodes:
//
//	gorilla's ReadJSON, others that fail    the error is dropped with the marker
//	coder's wsjson.Read, which closes the   the marker is the message "null", which decodes into
//	connection when a message isn't JSON    anything; Read must not check the value
//	a decoder of your own that closes the   decode in Handle
//	connection, or answers, when it fails
//
// # Messages that follow each other
//
// Arming a connection and waking it costs some 5 µs of CPU time. So if a message arrives within 50
// ms of the last one, the connection lingers after it and after the messages that follow: its
// goroutine waits in the library's read until 50 to 100 ms have passed without a byte. Then the
// Conn's own read fails (see [percore.Conn.SetNoWait]), the Conn answers the library with the
// marker, and the goroutine goes back. Connections whose messages are further apart never linger.
//
// # When a connection keeps its goroutine
//
// Where nothing proves that the library's buffer is empty, the connection isn't armed: its Session's
// Read blocks on a goroutine, as with the library alone. [Stats] counts these connections:
//
//   - connections that are not percore's, or are hidden behind a wrapper whose NetConn method doesn't
//     show them, and all connections off Linux, or with the build tag percore_net;
//   - libraries that read on a goroutine of their own;
//   - Reads that pass over both markers.
//
// Between the first and the last byte of a message a goroutine waits as well. A read deadline limits
// that.
//
// # Restarts
//
// Conversations can go to the process that replaces this one: see package
// [github.com/percore/percore/adapters/wsadapter/moving].
//
// # TLS, deadlines, Shutdown
//
// Over TLS the connection is the *tls.Conn that Hijack returns. It keeps its state and its buffers,
// because crypto/tls never frees them.
//
// A read deadline still holds while the connection waits: when it passes, the Session's Read is
// called and fails. So the usual guard works: a ping now and then, and a deadline that each pong
// moves. If Read passes a context with a deadline to the library (coder's Read), that deadline
// counts only while Read is running.
//
// A WebSocket over HTTP/2 (RFC 8441) is a stream, which no handler can hijack, and the libraries named
// above don't serve it. So this package is for HTTP/1.1.
//
// As usual, http.Server's Shutdown and Close leave hijacked connections to the user: close them with
// the library, in a function registered with RegisterOnShutdown. Each Session's End is then called.
package wsadapter
