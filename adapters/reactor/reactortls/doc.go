// Package reactortls adds TLS to package reactor, with crypto/tls:
//
//	err = reactor.Serve(ln, handler, reactor.Config{TLS: reactortls.Server(config, reactortls.Limits{})})
//
// The handler is the same as without TLS: Data gets the decrypted bytes, and what the handler writes
// is encrypted. Open is called once the handshake is done; [ConnectionState] then has the name that
// the client asked for, the negotiated protocol, and the client's certificates. All fields of the
// tls.Config count: ALPN, certificates by name, client certificates, session tickets.
//
// # The handshake
//
// A connection that has sent nothing waits on its loop. When bytes come, a goroutine performs the
// handshake. Only as many handshakes compute at a time as there were processors (GOMAXPROCS) when the
// server was made. A connection whose handshake isn't done within Limits.HandshakeTimeout is closed.
// Errors are logged to the server's log at debug level, and failed_handshakes_total counts them.
//
// Functions of the tls.Config, such as GetCertificate, may block. After 20 ms such a call no longer
// counts as computing, so other handshakes go on: as many every 20 ms as there are processors. The
// function should return when its context (ClientHelloInfo.Context) ends, after HandshakeTimeout or
// with the server; until it returns, the handshake keeps its place. If clients can make a function
// block by choosing a name, find the certificates before they are needed.
//
// # What is different
//
//   - Bytes that wait for the peer ([reactor.Conn.Unsent], WriteHighWaterMark, WriteHardLimit) are
//     counted as records, which are some 22 bytes longer than the data. Each call of Write makes a
//     record of its own, so write a header and its body with WriteBuffers.
//   - Write encrypts on the goroutine that calls it: that takes some 5 µs for 16 KiB. Writes to one
//     connection wait for each other, and its loop waits for them.
//   - ReadTimeout also counts for the rest of a record that the peer has begun.
//   - The end of the peer's stream is its close_notify alert, or, as with crypto/tls, the connection's
//     end between two records. CloseWrite sends close_notify, and so do Close and Abort before
//     the connection ends.
//   - Broadcast and WriteShared encrypt for each connection: a shared buffer saves no memory.
//   - Hijack returns a *tls.Conn for blocking code, which Attach takes again. Attach also takes a
//     *tls.Conn that the program has made above [Wrap], as for connections that it has dialed, or for
//     STARTTLS.
//
// An idle connection takes 8 to 10 KB, almost all of it in crypto/tls, which also keeps memory for
// the longest record that it has read: up to 16 KiB more.
//
// # Floods
//
// As with crypto/tls, a client can't renegotiate. More than 16 messages in a row that are not data,
// such as KeyUpdates, end the connection. Between data, such messages are read in turns with other
// connections. They are not read at all while the answers to them wait for the peer, since these
// answers count like everything else that is written.
package reactortls
