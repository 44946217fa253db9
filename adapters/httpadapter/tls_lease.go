package httpadapter

import "crypto/tls"

// tlsConn is the lease of a connection that speaks HTTP/1 over TLS. net/http takes
// it for a plain connection that happens to know its tls.ConnectionState, which it
// puts into Request.TLS. The user's hooks get the *tls.Conn, and so does net/http
// for any other protocol that ALPN chose, and to report a handshake that failed.
//
// Parking needs no look inside the *tls.Conn, which stays as it is. When its Read
// reads from the connection it has used up all that it has buffered, except the
// beginning of a record; so if there is nothing to read, nothing more can come out
// of it until there is, and the engine watches for that. A timeout leaves it
// intact.
type tlsConn struct {
	*tls.Conn
	conn *conn
}

// Read reads for net/http.
func (t *tlsConn) Read(p []byte) (int, error) { return t.conn.read(p) }

// Close closes the connection unless net/http gives a lease back.
func (t *tlsConn) Close() error {
	if t.conn.endLease() {
		return nil
	}
	// If the user's Close of the *tls.Conn is under way this one does nothing, and StateClosed
	// may come before the connection is closed.
	t.conn.shutFirst()
	return t.Conn.Close()
}
