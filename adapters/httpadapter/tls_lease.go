package httpadapter

import (
	"context"
	"crypto/tls"
	"net/http"
	"runtime"
	"slices"
	"time"
)

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
func (t *tlsConn) Read(p []byte) (int, error) {
	return t.conn.read((*tlsUnreadFirst)(t), p)
}

// tlsUnreadFirst is unreadFirst over TLS.
type tlsUnreadFirst tlsConn

func (u *tlsUnreadFirst) Read(p []byte) (int, error) {
	if n := u.conn.readUnread(p); n > 0 {
		return n, nil
	}
	return u.Conn.Read(p)
}

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

// handshake shakes hands as net/http's server would. If it fails, net/http tells
// the log, and a client that spoke plain HTTP.
func (c *conn) handshake() {
	defer func() {
		if err := recover(); err != nil {
			c.queue.server.logPanic(c, err)
			c.abortHandshake()
		}
	}()
	tc, err := c.ext.tls, c.completeHandshake()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateHandshake {
		return // closed meanwhile: see logHandshake
	}
	c.ext.lease = tc
	if err == nil {
		if c.queue.server.firstByteTimeout(true) > 0 { // else the deadlines are the user's
			c.real.set(0)
			_ = c.Conn.SetDeadline(time.Time{})
		}
		if isHTTP1(tc.ConnectionState().NegotiatedProtocol) {
			c.ext.lease = &tlsConn{tc, c}
			if c.queue.call.fast {
				c.serveAfterHandshakeLocked()
				return
			}
		}
	}
	c.enqueueLocked()
}

// completeHandshake is the handshake, or its outcome once it is over.
func (c *conn) completeHandshake() error {
	ctx := context.WithValue(c.ext.ctx, http.LocalAddrContextKey, c.LocalAddr())
	return c.ext.tls.HandshakeContext(ctx)
}

// logHandshake tells the log of a handshake that failed, if it did, as net/http would of
// a connection that it had. The connection is closed: a handshake that is under way, or
// was still to come, ends at once.
func (c *conn) logHandshake() {
	s := c.queue.server
	defer func() {
		if err := recover(); err != nil {
			s.logPanic(c, err)
		}
	}()
	err := c.completeHandshake()
	if err == nil {
		return
	}
	reason := err.Error()
	if re, ok := err.(tls.RecordHeaderError); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
		reason = "client sent an HTTP request to an HTTPS server"
	}
	s.logf("http: TLS handshake error from %s: %v", c.RemoteAddr(), reason)
}

// looksLikeHTTP reports whether the bytes in the place of a TLS record's header begin a
// request, of those that net/http knows here.
func looksLikeHTTP(header [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(header[:]))
}

// abortHandshake closes a connection whose handshake panicked. The handshake must not be
// asked for its outcome then: it would begin anew.
func (c *conn) abortHandshake() {
	c.mu.Lock()
	ended := c.state() == stateHandshake && c.endLocked(connState.close)
	c.mu.Unlock()
	if ended {
		_ = c.identity().Close()
		c.queue.server.report(c.identity(), http.StateClosed)
		c.queue.call.release()
	}
}

// isHTTP1 reports whether net/http serves HTTP/1 on a connection for which ALPN
// has chosen the protocol.
func isHTTP1(protocol string) bool {
	switch protocol {
	case "", "http/1.1", "http/1.0":
		return true
	}
	return false
}

// logPanic logs a panic of the user's as net/http does.
func (s *Server) logPanic(c *conn, reason any) {
	if reason == http.ErrAbortHandler {
		return
	}
	const size = 64 << 10
	buf := make([]byte, size)
	buf = buf[:runtime.Stack(buf, false)]
	s.logf("http: panic serving %v: %v\n%s", c.RemoteAddr(), reason, buf)
}
