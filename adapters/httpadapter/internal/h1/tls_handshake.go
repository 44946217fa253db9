package h1

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/percore/percore/internal/monotime"
	"github.com/percore/percore/internal/serving"
)

// handshaker is a Conn for the goroutine that performs its handshake.
type handshaker Conn

// begin starts the handshake of a connection in that state as soon as there is a place for it. A
// handshake that is given up for others fails as if its time were up.
func (h *handshaker) begin() {
	c := (*Conn)(h)
	place := &serving.Handshake{Do: h.run, Cut: func() { _ = c.Conn.SetDeadline(monotime.LongAgo) }}
	c.ext.shaking.Store(place)
	c.server().Handshakes.Enter(c.Conn, place)
}

// run performs the handshake as net/http's server would.
func (h *handshaker) run(place *serving.Handshake) {
	c := (*Conn)(h)
	defer func() {
		if err := recover(); err != nil {
			c.logPanic(err)
			h.abort()
		}
	}()
	tc, err := c.ext.tls, h.complete()
	c.ext.shaking.Store(nil)
	if !place.Finish() && err == nil {
		c.closeIf(isKept) // it was given up just before
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state() != stateHandshake {
		return // closed by now: see log
	}
	c.ext.shaken = true
	if err != nil {
		go h.fail(err)
		return
	}
	h.endLimitLocked()
	switch state := tc.ConnectionState(); {
	case slices.Contains(http1Protocols, state.NegotiatedProtocol):
		if at := c.server().headerDeadline(); at != 0 {
			c.setRealDeadlineLocked(at)
		}
		c.serveLocked() // crypto/tls may have the first request in its buffer
	default:
		c.change(connState.serve)
		go c.Host().Switch(c, nil)
	}
}

// http1Protocols are the protocols for which net/http serves HTTP/1 if ALPN has chosen one.
var http1Protocols = []string{"", "http/1.1", "http/1.0"}

// complete is the handshake, or its outcome once it is over.
func (h *handshaker) complete() error {
	c := (*Conn)(h)
	ctx := context.WithValue(c.ext.ctx, http.LocalAddrContextKey, c.LocalAddr())
	return c.ext.tls.HandshakeContext(ctx)
}

// log logs a handshake that failed, if it did. The connection is closed, so a handshake that is under
// way, or still to come, ends at once.
func (h *handshaker) log() {
	c := (*Conn)(h)
	defer c.logsPanic()
	if err := h.complete(); err != nil {
		h.logError(err)
	}
}

// logError logs a handshake that failed as net/http does. If the client has sent an HTTP request, it
// returns the connection below TLS, for an answer. Only the first call for a connection does anything:
// it may be closed while its handshake fails.
func (h *handshaker) logError(err error) (plain net.Conn) {
	c := (*Conn)(h)
	if c.ext.failed.Swap(true) {
		return nil
	}
	reason := err.Error()
	if re, ok := err.(tls.RecordHeaderError); ok && re.Conn != nil && looksLikeHTTP(re.RecordHeader) {
		plain, reason = re.Conn, "client sent an HTTP request to an HTTPS server"
	}
	c.Host().Logf("http: TLS handshake error from %s: %v", c.RemoteAddr(), reason)
	return plain
}

// fail ends a connection whose handshake has failed.
func (h *handshaker) fail(err error) {
	if plain := h.logError(err); plain != nil {
		_, _ = io.WriteString(plain, "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")
	}
	h.abort()
}

// looksLikeHTTP reports whether the bytes in place of a TLS record's header begin a request that
// net/http knows here.
func looksLikeHTTP(header [5]byte) bool {
	return slices.Contains([]string{"GET /", "HEAD ", "POST ", "PUT /", "OPTIO"}, string(header[:]))
}

// abort closes a connection whose handshake has failed or panicked. After a panic complete must not be
// called: the handshake would begin again.
func (h *handshaker) abort() {
	c := (*Conn)(h)
	c.mu.Lock()
	ended := c.state() == stateHandshake && c.endLocked(connState.close)
	c.mu.Unlock()
	if ended {
		_ = c.Identity().Close()
		c.ReportSafely(http.StateClosed)
		c.Host().Left()
	}
}

// endLimitLocked removes the deadlines of the handshake, unless the user has set them.
func (h *handshaker) endLimitLocked() {
	if h.ext.limit {
		h.real.set(0)
		_ = h.Conn.SetDeadline(time.Time{})
	}
}
