package h1

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/serving"
)

// beginHandshake performs the handshake of a connection in that state, when there is a place for it. One
// that is given up for others fails as if its time were up. It doesn't block.
func (c *Conn) beginHandshake() {
	h := &serving.Handshake{Do: c.handshake, Cut: func() { _ = c.Conn.SetDeadline(monotime.LongAgo) }}
	c.ext.shaking.Store(h)
	c.queue.server.Handshakes.Enter(c.Conn, h)
}

// handshake performs the handshake as net/http's server would.
func (c *Conn) handshake(h *serving.Handshake) {
	defer func() {
		if err := recover(); err != nil {
			c.logPanic(err)
			c.abortHandshake()
		}
	}()
	tc, err := c.ext.tls, c.completeHandshake()
	c.ext.shaking.Store(nil)
	if !h.Finish() && err == nil {
		c.hangUp() // it was given up just before
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateHandshake {
		return // closed by now: see logHandshake
	}
	c.ext.shaken = true
	if err != nil {
		go c.failHandshake(err)
		return
	}
	c.endHandshakeLimitLocked()
	switch state := tc.ConnectionState(); {
	case isHTTP1(state.NegotiatedProtocol):
		c.serveAfterHandshakeLocked()
	default:
		c.change(connState.serve)
		go c.queue.server.Host.Switch(c, nil)
	}
}

// completeHandshake is the handshake, or its outcome once it is over.
func (c *Conn) completeHandshake() error {
	ctx := context.WithValue(c.ext.ctx, http.LocalAddrContextKey, c.LocalAddr())
	return c.ext.tls.HandshakeContext(ctx)
}

// logHandshake logs a handshake that failed, if it did, as net/http would for a connection
// that it had. The connection is closed: a handshake that is under way, or
// was still to come, ends at once.
func (c *Conn) logHandshake() {
	defer func() {
		if err := recover(); err != nil {
			c.logPanic(err)
		}
	}()
	err := c.completeHandshake()
	if err == nil {
		return
	}
	c.logHandshakeError(err)
}

// logHandshakeError logs a handshake that failed as net/http does. It returns the connection below TLS
// if the client has sent an HTTP request there, which is to be answered. Only the first call for a
// connection does anything: it may be closed while its handshake fails.
func (c *Conn) logHandshakeError(err error) (plain net.Conn) {
	if c.ext.failed.Swap(true) {
		return nil
	}
	reason := err.Error()
	if re, ok := err.(tls.RecordHeaderError); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
		plain, reason = re.Conn, "client sent an HTTP request to an HTTPS server"
	}
	c.queue.server.Host.Logf("http: TLS handshake error from %s: %v", c.RemoteAddr(), reason)
	return plain
}

// failHandshake ends a connection whose handshake has failed.
func (c *Conn) failHandshake(err error) {
	if plain := c.logHandshakeError(err); plain != nil {
		_, _ = io.WriteString(plain, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	c.abortHandshake()
}

// looksLikeHTTP reports whether the bytes instead of a TLS record's header begin a
// request, of those that net/http knows here.
func looksLikeHTTP(header [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(header[:]))
}

// abortHandshake closes a connection whose handshake has failed or panicked. The handshake must not be
// asked for its outcome after a panic: it would begin again.
func (c *Conn) abortHandshake() {
	c.mu.Lock()
	ended := c.state() == stateHandshake && c.endLocked(connState.close)
	c.mu.Unlock()
	if ended {
		_ = c.Identity().Close()
		c.ReportSafely(http.StateClosed)
		c.queue.server.Host.Left()
	}
}

// serveAfterHandshakeLocked has a worker serve a connection that has shaken hands. crypto/tls may
// have the first request in its buffer. The caller holds c.mu.
func (c *Conn) serveAfterHandshakeLocked() {
	if at := c.queue.server.headerDeadline(); at != 0 {
		c.setRealDeadlineLocked(at)
	}
	c.change(connState.serve)
	c.queue.workers.Serve(c)
}
